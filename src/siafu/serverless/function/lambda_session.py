"""LambdaSession: one invocation at a graph server: it asks for tasks, computes them, and says when it leaves."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from siafu.base.errors import SiafuError
from siafu.program.tensor_program import Spec
from siafu.serverless.control.failure import one_line
from siafu.serverless.function.payload import Endpoint, Payload
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.function.task_spec import TaskSpec
from siafu.serverless.function.warm import Purpose, Warm
from siafu.wire import messages as say
from siafu.wire.link import Link, LinkLost
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Array

WINDOW = 8
"""Parts that may be under way to us while we compute."""
_SIGN_OF_LIFE_SECONDS = 5.0
_FAREWELL_SECONDS = 1.0

SecondsLeft = Callable[[], float]
"""How long the platform lets the invocation run on."""


class _Cancelled(Exception):
    """Nobody waits for the task any more."""


class _OutOfTime(Exception):
    """The platform is about to end the invocation."""


class _Dismissed(Exception):
    """The server has nothing more for us."""


class _NoWeights(SiafuError):
    """The weight server does not have what the task needs."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stash:
    """Tensors that a task left for a later task of the same pass."""

    tag: int
    tensors: dict[str, Array]


class LambdaSession:
    """Computes tasks until none are left, or no time."""

    def __init__(self, payload: Payload, warm: Warm, seconds_left: SecondsLeft) -> None:
        self._payload, self._warm, self._seconds_left = payload, warm, seconds_left
        self._receipt = Receipt(payload.run, payload.invocation, payload.slot, cold=int(not warm.invocations))
        self._stall = payload.stall_ms / 1000
        self._computing = self._waiting = self._longest_task = 0.0
        self._lease: int | None = None
        self._asks = self._asked = 0
        self._in_hand: deque[say.TaskOffer | say.Forget | say.ForgetStash] = deque()
        self._came: dict[int, deque[say.TaskInputPart]] = {}
        self._blocks: dict[int, dict[str, Array]] = {}
        self._stashes: dict[int, _Stash] = {}
        self._read: dict[str, Spec] = {}

    def run(self) -> Receipt:
        """Serve tasks until the session ends; whatever the servers do, there is a receipt."""
        began, receipt, before = time.perf_counter(), self._receipt, self._warm.traffic()
        self._warm.begin(self._payload.run, self._payload.keys)
        try:
            receipt.ended = self._serve()
            self._leave()
        except (LinkLost, Refusal) as trouble:
            receipt.ended = "lost" if isinstance(trouble, LinkLost) else "refused"
            receipt.why = one_line(str(trouble))
            self._warm.close()  # whatever still comes through them is not for us
        after = self._warm.traffic()
        receipt.bytes_in, receipt.bytes_out = after[0] - before[0], after[1] - before[1]
        receipt.compute_ms, receipt.wait_ms = round(1000 * self._computing), round(1000 * self._waiting)
        receipt.total_ms = round(1000 * (time.perf_counter() - began))
        return receipt

    def _serve(self) -> str:
        """Compute tasks; returns why there are no more."""
        try:
            self._say_hello()
            while True:
                offer = self._next_offer()
                if offer is None:
                    return "idle"
                self._do(offer)
                if 0 < self._payload.tasks <= self._receipt.tasks + self._receipt.given_back:
                    return "enough"
                self._check_time()
                self._ask()
        except _Dismissed:
            return "dismissed"
        except _OutOfTime:
            return "deadline"

    def _say_hello(self) -> None:
        """Find the server, and ask for the first tasks at once: it saves a round trip."""
        hello = say.Hello(
            self._payload.run, self._payload.invocation, self._payload.slot, self._warm.programs
        )
        welcome = say.Welcome(self._payload.invocation)
        places = max(1, min(self._payload.places, self._payload.tasks or self._payload.places))
        self._asks = self._asked = places
        asks = [say.AskTask(WINDOW)] * places
        self._question("tasks", self._payload.graph, [hello, *asks], lambda heard: heard == welcome)

    def _ask(self) -> None:
        """Ask for one more task, if the payload allows it."""
        if not self._payload.tasks or self._asked < self._payload.tasks:
            self._asks += 1
            self._asked += 1
            self._send(say.AskTask(WINDOW))

    def _check_time(self) -> None:
        """Stop while there is time for it: another task may take as long as the longest so far, and longer."""
        if self._seconds_left() < max(self._payload.margin_ms / 1000, 2 * self._longest_task):
            raise _OutOfTime

    def _next_offer(self) -> say.TaskOffer | None:
        """The next offer; None: none came in time."""
        until = time.perf_counter() + self._payload.idle_ms / 1000
        while (rest := until - time.perf_counter()) > 0:
            if self._in_hand:
                following = self._in_hand.popleft()
                if isinstance(following, say.TaskOffer):
                    return following
                self._forget(following)
            else:
                self._hear(rest)
        return None

    def _do(self, offer: say.TaskOffer) -> None:
        """Compute a task, or give it back: another Lambda may succeed."""
        began = time.perf_counter()
        self._lease = offer.lease
        try:
            self._work(offer)
            self._receipt.tasks += 1
            self._receipt.rows += offer.rows
        except (LinkLost, Refusal):
            raise
        except _Cancelled:
            self._give_back("cancelled")
        except (_OutOfTime, _Dismissed):
            self._give_back("no time left")
            raise
        except Exception as error:  # whatever a program meets: the server must hear of it
            self._give_back(one_line(f"{type(error).__name__}: {error}"))
        finally:
            self._lease = None
            del self._came[offer.lease]
            self._longest_task = max(self._longest_task, time.perf_counter() - began)

    def _give_back(self, why: str) -> None:
        assert self._lease is not None
        self._receipt.given_back += 1
        self._send(say.TaskReturn(self._lease, why))

    def _work(self, offer: say.TaskOffer) -> None:
        program = self._warm.program(offer.program)
        if program is None or not 1 <= offer.parts <= max(1, offer.rows):
            raise Refusal("unexpected", "an offer of a program that never came, or in parts that cannot be")
        computed, waited = self._computing, self._waiting
        spec = program.spec(offer.precision)
        spec.check(spec.whole_inputs, offer.tensors, offer.rows)
        constant = self._weights(offer, spec) | dict(offer.tensors)
        self._check_kept(offer, spec)
        parts = self._parts(offer, spec, self._held(offer, spec))
        if not self._payload.streaming:
            parts = iter(list(parts))
        sums: dict[str, Array] = {}
        came: dict[str, list[Array]] = {name: [] for name in offer.keep}
        left: dict[str, list[Array]] = {name: [] for name in offer.leave}
        arriving = spec.arriving(offer.unsent)
        for part, rows, tensors in parts:
            began = time.perf_counter()
            for name, arrays in came.items():
                arrays.append(tensors[name])
            found = program.run(constant | tensors, rows)
            outputs = dict(zip(spec.program.output_names, found, strict=True))
            for name, arrays in left.items():
                arrays.append(outputs[name] if name in outputs else tensors[name])
            sums = {name: outputs[name] + sums[name] if name in sums else outputs[name] for name in spec.sums}
            self._computing += time.perf_counter() - began
            if arriving:
                made = {name: outputs[name] for name in arriving}
                self._send(say.TaskOutputPart(offer.lease, part, made))
        self._keep(offer, came, left)
        took = round(1e6 * (self._computing - computed)), round(1e6 * (self._waiting - waited))
        self._send(say.TaskEnd(offer.lease, *took, sums))

    def _parts(
        self, offer: say.TaskOffer, spec: TaskSpec, held: dict[str, Array]
    ) -> Iterator[tuple[int, int, dict[str, Array]]]:
        """Number, rows and inputs of each part, as parts arrive; each arrival gives credit for another."""
        held_specs = {name: spec.row_inputs[name] for name in offer.held}
        travelling = spec.travelling(offer.held)
        for part in range(offer.parts):
            first, last = say.part_bounds(offer.rows, offer.parts, part)
            rows = spec.rows_of(held_specs, held, first, last)
            if travelling or not spec.row_inputs:
                message = self._next_part(offer.lease)
                if message.part != part:
                    raise Refusal("unexpected", f"part {message.part} of a task's rows, not {part}")
                spec.check(travelling, message.tensors, last - first)
                if part + WINDOW < offer.parts:
                    self._send(say.Credit(offer.lease, 1))
                rows |= message.tensors
            yield part, last - first, rows

    def _check_kept(self, offer: say.TaskOffer, spec: TaskSpec) -> None:
        """Refuse an offer to keep or leave tensors that the program does not have."""
        named = (*offer.held, *offer.keep)
        if len(set(named)) != len(named) or not set(named) <= set(spec.row_inputs):
            raise Refusal("unexpected", "an offer that wants to keep what its program does not read")
        if not set(offer.leave) <= {*spec.row_outputs, *spec.row_inputs}:
            raise Refusal(
                "unexpected", "an offer that wants to leave what its program neither makes nor reads"
            )
        if not set(offer.unsent) <= set(offer.leave) & set(spec.row_outputs):
            raise Refusal("unexpected", "an offer that wants to be spared what its program does not leave")
        if offer.parts > 1 and not spec.can_be_cut:
            raise Refusal("unexpected", "an offer in parts of what cannot be cut")

    def _held(self, offer: say.TaskOffer, spec: TaskSpec) -> dict[str, Array]:
        """Tensors that the offer says we have. A stash is freed when it is used, or replaced."""
        found = dict(self._blocks.get(offer.block, {}))
        if offer.leave or not found.keys() >= set(offer.held):
            stash = self._stashes.pop(offer.block, None)
            if stash is not None and stash.tag == offer.tag:
                found |= stash.tensors
        held = {name: found[name] for name in offer.held if name in found}
        spec.check({name: spec.row_inputs[name] for name in offer.held}, held, offer.rows)
        return held

    def _keep(self, offer: say.TaskOffer, came: dict[str, list[Array]], left: dict[str, list[Array]]) -> None:
        """Keep rows for later tasks, joined from their parts."""
        for name, arrays in came.items():
            self._blocks.setdefault(offer.block, {})[name] = np.concatenate(arrays)
        if left:
            whole = {name: _joined(arrays) for name, arrays in left.items()}
            self._stashes[offer.block] = _Stash(offer.tag, whole)

    def _next_part(self, lease: int) -> say.TaskInputPart:
        while not self._came[lease]:
            if self._hear(self._stall) is None:
                raise LinkLost(f"{self._payload.graph.address} sent no rows for {self._stall:g} s")
        return self._came[lease].popleft()

    def _weights(self, offer: say.TaskOffer, spec: TaskSpec) -> dict[str, Array]:
        """The task's weights, by the program's names. Rows arrive while we wait for them."""
        self._read |= spec.weight_specs
        if self._warm.missing(offer.version, spec.weights):
            # With what later tasks are likely to read of the same version: each question costs a round trip.
            missing = self._warm.missing(offer.version, self._read)
            if offer.server >= len(self._payload.weights):
                raise Refusal("unexpected", f"weights of server {offer.server}, which we were not told of")
            self._fetch_weights(self._payload.weights[offer.server], offer.version, missing, spec)
        known = self._warm.weights(offer.version)
        return {f"weight/{name}": known[name] for name in spec.weights}

    def _fetch_weights(self, server: Endpoint, version: int, names: tuple[str, ...], spec: TaskSpec) -> None:
        def is_answer(heard: say.Message) -> bool:
            if isinstance(heard, say.WeightsMissing) and heard.version == version:
                raise _NoWeights(heard.why)
            return (
                isinstance(heard, say.WeightsReply)
                and heard.version == version
                and set(heard.tensors) == set(names)
            )

        answer = self._question("weights", server, [say.AskWeights(version, names)], is_answer)
        assert isinstance(answer, say.WeightsReply)
        spec.check({name: self._read[name] for name in names}, answer.tensors, 0)
        self._warm.keep_weights(version, answer.tensors)
        self._receipt.weights += len(names)

    def _question(
        self,
        purpose: Purpose,
        server: Endpoint,
        asked: list[say.Message],
        is_answer: Callable[[say.Message], bool],
    ) -> say.Message:
        """Ask, and wait for the answer; a dead connection of an earlier invocation is replaced."""
        while True:
            link, known = self._warm.link(purpose, server)
            patience = min(_SIGN_OF_LIFE_SECONDS, self._stall) if known else self._stall
            try:
                for message in asked:
                    link.send(message, self._limited(patience))
                while (heard := self._receive(link, patience)) is not None:
                    # What else comes through a connection from earlier was meant for an earlier invocation.
                    if is_answer(heard):
                        return heard
                raise LinkLost(f"{server.address} does not answer")
            except LinkLost:
                if not known:
                    raise
            self._warm.drop(purpose, server)

    def _hear(self, seconds: float) -> say.Message | None:
        """Take the graph server's next message: act on it, or queue it."""
        heard = self._receive(self._graph(), seconds)
        match heard:
            case say.ProgramText():
                self._warm.keep_program(heard.hash, heard.text())
                self._receipt.programs += 1
            case say.TaskOffer():
                if not self._asks or heard.lease in self._came:
                    raise Refusal("unexpected", "an offer that was not asked for")
                self._asks -= 1
                self._in_hand.append(heard)
                self._came[heard.lease] = deque()
            case say.TaskInputPart() if heard.lease in self._came:  # else it was cancelled
                self._came[heard.lease].append(heard)
            case say.Forget() | say.ForgetStash() if self._came:
                self._in_hand.append(heard)  # what was offered before may need it, or make it
            case say.Forget() | say.ForgetStash():
                self._forget(heard)
            case say.TaskCancel() if heard.lease == self._lease:
                raise _Cancelled
            case say.TaskCancel() if heard.lease in self._came:
                self._put_down(heard.lease)
            case say.Dismiss():
                raise _Dismissed
        return heard

    def _forget(self, what: say.Forget | say.ForgetStash) -> None:
        self._stashes.pop(what.block, None)
        if isinstance(what, say.Forget):
            self._blocks.pop(what.block, None)

    def _put_down(self, lease: int) -> None:
        """Give back a task that has not begun and was cancelled."""
        self._in_hand = deque(
            each for each in self._in_hand if not (isinstance(each, say.TaskOffer) and each.lease == lease)
        )
        del self._came[lease]
        self._receipt.given_back += 1
        self._send(say.TaskReturn(lease, "cancelled"))
        self._ask()

    def _receive(self, link: Link, seconds: float) -> say.Message | None:
        began = time.perf_counter()
        heard = link.receive(self._limited(seconds))
        self._waiting += time.perf_counter() - began
        if isinstance(heard, say.Refused):
            raise Refusal("unexpected", f"the server refused what we said: {heard.why}")
        return heard

    def _send(self, message: say.Message) -> None:
        left = max(self._seconds_left() - _FAREWELL_SECONDS, _FAREWELL_SECONDS)
        self._graph().send(message, min(self._stall, left))

    def _graph(self) -> Link:
        return self._warm.link("tasks", self._payload.graph)[0]

    def _limited(self, seconds: float) -> float:
        """Seconds to wait at most: the platform must not end us meanwhile."""
        left = self._seconds_left() - _FAREWELL_SECONDS
        if left <= 0:
            raise _OutOfTime
        return min(seconds, left)

    def _leave(self) -> None:
        """Once the server has answered, it has everything that we sent: the platform may stop this process now."""
        link, left = self._graph(), say.Left(self._payload.invocation)
        patience = min(self._stall, max(_FAREWELL_SECONDS, self._seconds_left() - _FAREWELL_SECONDS))
        until = time.perf_counter() + patience
        link.send(say.Leave(self._payload.invocation), patience)
        while (heard := link.receive(max(0.0, until - time.perf_counter()))) != left:
            if isinstance(heard, say.Refused):
                raise Refusal("unexpected", f"the server refused what we said: {heard.why}")
            if time.perf_counter() > until:
                raise LinkLost(f"{self._payload.graph.address} does not let us go")


def _joined(parts: list[Array]) -> Array:
    """All rows in memory of their own: a part may be a view of something larger."""
    alone = parts[0] if len(parts) == 1 else None
    return np.concatenate(parts) if alone is None or alone.base is not None else alone

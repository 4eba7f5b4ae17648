"""TaskDesk: a graph server's side of the talk with Lambdas. It checks, streams and collects; it decides nothing.

Who decides (`controller`, through the runtime) hears `DeskEvent`s and calls `offer`, `dismiss` and `cancel`. Everything
happens in one thread, that of `desk_loop.DeskLoop`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from siafu.errors import BadInput
from siafu.program.tensor_program import Spec, TensorProgram
from siafu.serverless.blocks import KeptBlocks
from siafu.serverless.ids import InvocationId, PeerId, TaskId
from siafu.serverless.task_spec import TaskSpec, rows_slice
from siafu.wire import messages as say
from siafu.wire.link import Peer
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Array, Tensors

PART_BYTES = 1 << 20
_MOST_PEERS = 4
"""Of one invocation: a platform may run it again, but not for ever."""

Send = Callable[[Peer, say.Message], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """A tensor task, with all that a Lambda needs but the weights.

    rows:      how many
    precision: float32 or float64
    server:    the weight server that has the weights, by its place in the invocation's list
    version:   of the weights
    inputs:    every input of the program but the weights; must not change while the task is out
    block:     a number for what its `constants` are rows of
    constants: inputs with rows that never change: a Lambda may keep them for other tasks on the same block
    """

    task: TaskId
    program: TensorProgram
    rows: int
    precision: str
    server: int
    version: int
    inputs: Tensors
    block: int = 0
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A Lambda can take a task."""

    invocation: InvocationId
    peer: PeerId


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A Lambda has done a task: every output of the program, checked. Once for each time that it was offered.

    compute_us, wait_us: microseconds that it says it took
    bytes_sent: to it, of the inputs
    """

    invocation: InvocationId
    peer: PeerId
    task: TaskId
    outputs: dict[str, Array]
    compute_us: int
    wait_us: int
    bytes_sent: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A Lambda will not finish a task: it said so, left, or sent what cannot be."""

    invocation: InvocationId
    peer: PeerId
    task: TaskId
    why: str


@dataclass(frozen=True, slots=True)
class Late:
    """A Lambda has done a task that was cancelled. Its result is dropped."""

    invocation: InvocationId
    peer: PeerId
    task: TaskId


DeskEvent = Asked | Finished | GivenBack | Late


@dataclass(eq=False, slots=True)
class _Lease:
    """A task in one Lambda's hands. `sent` and `came` count parts; `credit` is how many more may be sent.

    held, keep: as the offer has them; `keep` with what they take in bytes
    """

    number: int
    assignment: Assignment
    spec: TaskSpec
    parts: int
    credit: int
    held: frozenset[str]
    keep: dict[str, int]
    sent: int = 0
    came: int = 0
    outputs: dict[str, Array] = field(default_factory=dict)

    def next_part(self) -> say.InputPart:
        first, last = say.part_bounds(self.assignment.rows, self.parts, self.sent)
        rows = self.spec.rows_of(self.travelling, self.assignment.inputs, first, last)
        return say.InputPart(self.number, self.sent, rows)

    @property
    def travelling(self) -> dict[str, Spec]:
        """The inputs that come in parts."""
        return self.spec.travelling(self.held)

    @property
    def bytes_sent(self) -> int:
        return self.spec.bytes(self.travelling | self.spec.whole_inputs, self.assignment.rows)

    def take(self, part: say.OutputPart) -> None:
        """Put rows where they belong. Memory is allocated by what the task is, never by what a peer says."""
        if part.part != self.came or self.came == self.parts:
            raise Refusal("unexpected", f"part {part.part} of a result, after {self.came} of {self.parts}")
        spec, rows = self.spec, self.assignment.rows
        first, last = say.part_bounds(rows, self.parts, part.part)
        spec.check(spec.row_outputs, part.tensors, last - first)
        self.came += 1
        for name, each in spec.row_outputs.items():
            if name not in self.outputs:
                self.outputs[name] = np.empty(each.sizes(rows), spec.dtype(each))
            self.outputs[name][rows_slice(each, first, last)] = part.tensors[name]

    def finish(self, result: say.Result) -> dict[str, Array]:
        if self.came != self.parts and self.spec.row_outputs:
            raise Refusal("unexpected", f"a result after {self.came} of {self.parts} parts")
        self.spec.check(self.spec.sums, result.tensors, self.assignment.rows)
        return self.outputs | {name: each.copy() for name, each in result.tensors.items()}


@dataclass(eq=False, slots=True)
class _Session:
    """A Lambda that has said hello. `cancelled`: tasks by lease, until it answers."""

    peer: Peer
    id: PeerId
    invocation: InvocationId
    programs: set[str]
    kept: KeptBlocks
    asks: bool = False
    credit: int = 0
    leases: dict[int, _Lease] = field(default_factory=dict)
    cancelled: dict[int, TaskId] = field(default_factory=dict)


class TaskDesk:
    """Sessions with Lambdas and the tasks in their hands.

    run:           only Lambdas of this run are served
    send:          to a peer, without waiting; False: it cannot be reached
    tell:          hears what happened, in the same thread
    part_bytes:    about how much a part of a task's rows holds
    keep_bytes:    how much each Lambda may keep of rows that never change
    largest_frame: what the transport carries, in bytes
    """

    hears = (say.Hello, say.Ask, say.Credit, say.OutputPart, say.Result, say.GiveBack, say.Leave)

    def __init__(
        self,
        run: str,
        send: Send,
        tell: Callable[[DeskEvent], None],
        *,
        part_bytes: int = PART_BYTES,
        keep_bytes: int = 0,
        largest_frame: int = 64 << 20,
    ) -> None:
        self._keep_bytes = keep_bytes
        self._run, self._send, self._tell = run, send, tell
        self._part_bytes, self._largest_frame = part_bytes, largest_frame
        self._expected: dict[InvocationId, str] = {}
        self._sessions: dict[PeerId, _Session] = {}
        self._next_lease = 1
        self._specs: dict[tuple[str, str], TaskSpec] = {}

    def expect(self, invocation: InvocationId, key: str = "") -> None:
        """A Lambda may come that calls itself so and proves this public key."""
        self._expected[invocation] = key

    def forget(self, invocation: InvocationId) -> None:
        """It is over: nothing more is taken from it. What it held is not reported."""
        self._expected.pop(invocation, None)
        for session in [each for each in self._sessions.values() if each.invocation == invocation]:
            del self._sessions[session.id]
            self._send(
                session.peer, say.Dismiss(invocation)
            )  # who is there all the same need not wait for rows

    def offer(self, peer: PeerId, assignment: Assignment) -> bool:
        """Give a task to a Lambda that has asked. False: it is gone."""
        session = self._sessions.get(peer)
        if session is None or not session.asks:
            return False
        spec = self._spec(assignment)
        constants = assignment.constants if self._keep_bytes else ()
        parts = spec.parts(assignment.rows, self._part_bytes, constants)
        held, keep = self._kept(session, assignment, spec)
        lease = _Lease(self._next_lease, assignment, spec, parts, session.credit, held, keep)
        self._check_sizes(lease)
        self._next_lease += 1
        session.asks = False
        session.leases[lease.number] = lease
        return self._send_offer(session, lease)

    def dismiss(self, peer: PeerId) -> None:
        """Tell a Lambda that it may go."""
        if peer in self._sessions:
            session = self._sessions[peer]
            self._send(session.peer, say.Dismiss(session.invocation))

    def cancel(self, task: TaskId) -> None:
        """Nobody waits for this task any more: take it from all who hold it."""
        for session in list(self._sessions.values()):
            for lease in [each for each in session.leases.values() if each.assignment.task == task]:
                del session.leases[lease.number]
                session.cancelled[lease.number] = task
                self._send(session.peer, say.Cancel(lease.number))
                if lease.keep:  # who knows how far it got
                    self._forget_block(session, lease.assignment.block)

    def receive(self, peer: Peer, message: say.Message) -> None:
        """What a Lambda said. A Refusal ends its session, and what it held is given back."""
        if isinstance(message, say.Hello):
            self._open(peer, message)
            return
        session = self._sessions.get(PeerId(peer.address.hex()))
        if session is None:
            raise Refusal("unexpected", f"{type(message).__name__} from a Lambda that is not expected")
        try:
            self._hear(session, message)
        except Refusal as refusal:
            self._close(session, f"refused: {refusal}")
            raise

    def _open(self, peer: Peer, hello: say.Hello) -> None:
        invocation = InvocationId(hello.invocation)
        if hello.run != self._run or self._expected.get(invocation) != peer.key:
            raise Refusal("unexpected", f"Hello from invocation {invocation}, which nobody expects")
        name = PeerId(peer.address.hex())
        if name in self._sessions:
            self._close(self._sessions[name], "its Lambda began anew")
        twins = [each for each in self._sessions.values() if each.invocation == invocation]
        if len(twins) >= _MOST_PEERS:
            self._close(twins[0], "its Lambda was run too often")
        kept = KeptBlocks(self._keep_bytes)
        self._sessions[name] = _Session(peer, name, invocation, set(hello.programs), kept)
        self._send(peer, say.Welcome(invocation))

    def _hear(self, session: _Session, message: say.Message) -> None:
        match message:
            case say.Ask():
                self._hear_ask(session, message)
            case say.Credit() if lease := self._lease(session, message.lease):
                if lease.credit + message.parts > say.MOST_CREDIT:
                    raise Refusal("unexpected", f"more credit than {say.MOST_CREDIT} parts")
                lease.credit += message.parts
                self._stream(session, lease)
            case say.OutputPart() if lease := self._lease(session, message.lease):
                lease.take(message)
            case say.Result():
                self._hear_result(session, message)
            case say.GiveBack():
                lease = self._lease(session, message.lease)
                self._end(session, message.lease)
                if lease is not None:
                    self._tell(GivenBack(session.invocation, session.id, lease.assignment.task, message.why))
            case say.Leave():
                self._close(session, "its Lambda left")
                self._send(session.peer, say.Left(session.invocation))

    def _hear_ask(self, session: _Session, ask: say.Ask) -> None:
        if session.asks or session.leases or session.cancelled or not 1 <= ask.credit <= say.MOST_CREDIT:
            raise Refusal(
                "unexpected", f"Ask before the last task's end, or for over {say.MOST_CREDIT} parts"
            )
        session.asks, session.credit = True, ask.credit
        self._tell(Asked(session.invocation, session.id))

    def _hear_result(self, session: _Session, result: say.Result) -> None:
        lease = self._lease(session, result.lease)
        if lease is None:
            task = session.cancelled[result.lease]
            self._end(session, result.lease)
            self._tell(Late(session.invocation, session.id, task))
            return
        outputs = lease.finish(result)
        if lease.keep:
            session.kept.add(lease.assignment.block, lease.keep)
        self._end(session, result.lease)
        task = lease.assignment.task
        took = result.compute_us, result.wait_us
        self._tell(Finished(session.invocation, session.id, task, outputs, *took, lease.bytes_sent))

    def _lease(self, session: _Session, number: int) -> _Lease | None:
        """None: it was cancelled, and the Lambda may not have known."""
        if number in session.leases:
            return session.leases[number]
        if number in session.cancelled:
            return None
        raise Refusal("unexpected", f"lease {number}, which this Lambda does not hold")

    def _end(self, session: _Session, number: int) -> None:
        session.leases.pop(number, None)
        session.cancelled.pop(number, None)

    def _send_offer(self, session: _Session, lease: _Lease) -> bool:
        task, program = lease.assignment, lease.assignment.program
        if program.hash not in session.programs:
            session.programs.add(program.hash)
            self._send(session.peer, say.Program.of(program.hash, program.to_json()))
        whole = {name: task.inputs[name] for name in lease.spec.whole_inputs}
        offer = say.Offer(
            lease.number,
            program.hash,
            task.precision,
            task.rows,
            lease.parts,
            task.server,
            task.version,
            task.block,
            tuple(sorted(lease.held)),
            tuple(sorted(lease.keep)),
            whole,
        )
        if not self._send(session.peer, offer):
            del session.leases[lease.number]
            self._close(session, "its Lambda cannot be reached")
            return False
        self._stream(session, lease)
        return True

    def _stream(self, session: _Session, lease: _Lease) -> None:
        """As many parts as there is credit for."""
        if not lease.travelling and lease.spec.row_inputs:
            return
        while lease.credit and lease.sent < lease.parts:
            if not self._send(session.peer, lease.next_part()):
                self._close(session, "its Lambda does not take what it has asked for")
                return
            lease.sent += 1
            lease.credit -= 1

    def _close(self, session: _Session, why: str) -> None:
        self._sessions.pop(session.id, None)
        for lease in session.leases.values():
            self._tell(GivenBack(session.invocation, session.id, lease.assignment.task, why))

    def _kept(
        self, session: _Session, task: Assignment, spec: TaskSpec
    ) -> tuple[frozenset[str], dict[str, int]]:
        """What a Lambda has of a task's constants, and what it shall keep of the others, with their sizes."""
        read = {name: spec.row_inputs[name] for name in task.constants if name in spec.row_inputs}
        held = session.kept.names(task.block) & frozenset(read)
        session.kept.use(task.block)
        missing = {
            name: spec.bytes({name: each}, task.rows) for name, each in read.items() if name not in held
        }
        gone = session.kept.make_room(task.block, sum(missing.values())) if missing else None
        if gone is None:
            return held, {}
        for block in gone:
            self._send(session.peer, say.Forget(block))
        return held, missing

    def _forget_block(self, session: _Session, block: int) -> None:
        session.kept.drop(block)
        self._send(session.peer, say.Forget(block))

    def _spec(self, assignment: Assignment) -> TaskSpec:
        name = assignment.program.hash, assignment.precision
        if name not in self._specs:
            self._specs[name] = TaskSpec(assignment.program, assignment.precision)
        return self._specs[name]

    def _check_sizes(self, lease: _Lease) -> None:
        """What cannot travel is known before anything does."""
        spec, task = lease.spec, lease.assignment
        given: Mapping[str, Array] = {
            name: task.inputs[name] for name in (*spec.row_inputs, *spec.whole_inputs) if name in task.inputs
        }
        try:
            spec.check(spec.row_inputs | spec.whole_inputs, given, task.rows)
        except Refusal as refusal:  # ours, not a peer's
            raise BadInput(f"a tensor task was given {refusal}") from refusal
        rows = -(-task.rows // lease.parts)
        sizes = [spec.largest(each, rows) for each in (spec.row_inputs, spec.row_outputs, spec.sums)]
        if max(sizes) > self._largest_frame:
            raise BadInput(
                f"a tensor task moves {max(sizes):,} bytes in one piece, {self._largest_frame:,} at most: use --lambdas off"
            )

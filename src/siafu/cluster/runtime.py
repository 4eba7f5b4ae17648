"""ClusterRuntime: the driver of a run whose servers are other processes. It holds the run's machine and no rows."""

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from siafu.base.activity import SPANS_KEPT
from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.bills import Bills
from siafu.cluster.collection import Collection
from siafu.cluster.crew import Crew, Loss, Server, ServerLost
from siafu.cluster.doings import DoingsOfAll
from siafu.cluster.graph_host import Share
from siafu.cluster.host import arrays, tensors_of
from siafu.cluster.letters import Letter
from siafu.cluster.logs import Logs
from siafu.cluster.losses import MOST_LOSSES, Losses
from siafu.cluster.member import Member
from siafu.cluster.post import Post
from siafu.cluster.requests import (
    Alive,
    Did,
    Failed,
    Leaving,
    LogLine,
    Replaced,
    Report,
    ReportWanted,
    TraceWanted,
    Unreachable,
)
from siafu.cluster.weight_host import STATE, WEIGHT
from siafu.graph.partition.reads import Reads
from siafu.pipeline.events import (
    Begin,
    BestKept,
    CheckpointAsked,
    CheckpointSaved,
    Event,
    Proceed,
    ServerGone,
    StopAsked,
)
from siafu.pipeline.ids import RUN, Address, Epoch, Incarnation, ServerId, Version
from siafu.pipeline.instructions import (
    Instruction,
    RecordEpoch,
    Replace,
    Rewind,
    SaveCheckpoint,
    Send,
    Stop,
)
from siafu.pipeline.run import RunMachine
from siafu.pipeline.setup import Setup
from siafu.runtime.counting import added
from siafu.runtime.happenings import EpochRecord, Happening, Outcome, Snapshot
from siafu.server.assembly import layout_of
from siafu.server.plan import Plan
from siafu.wire.refusal import Refusals
from siafu.wire.tensors import Array

LOST_AFTER_SECONDS = 10.0
"""A server that is not heard of for so long is lost. One whose process ends is noticed sooner."""

_PULSE_SECONDS = 1.0
_WATCH_SECONDS = 0.2
_NO_LIFE = 0
T = TypeVar("T")


class ClusterRuntime:
    """Drives a run on a crew; `events` gives what happens, as it happens.

    plan:      what every server is made by
    crew:      starts and watches the processes
    machine:   makes the run's machine for a setup
    start:     the weights and the optimizer's state to start from
    log:       a directory for the servers' logs; None: they are not kept
    checkpoint_due: asked after every epoch: whether a checkpoint is wanted next
    traced:    whether records tell of every task of the graph servers
    """

    def __init__(
        self,
        plan: Plan,
        crew: Crew,
        machine: Callable[[Setup], RunMachine],
        start: Snapshot,
        *,
        log: Path | None = None,
        checkpoint_due: Callable[[], bool] = lambda: False,
        lost_after: float = LOST_AFTER_SECONDS,
        traced: bool = False,
    ) -> None:
        self.servers: dict[Address, Server] = {}
        self._plan, self._crew, self._make_machine = plan, crew, machine
        self._saved = start
        self._saved_counters: dict[str, Any] = {}
        self._counters_at_begin: dict[str, Any] = {}
        self._logs, self._checkpoint_due, self._lost_after = Logs(log), checkpoint_due, lost_after
        self._happened: queue.SimpleQueue[Happening | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._best: dict[str, Tensor] | None = None
        self._collection: Collection | None = None
        self._numbers = 0
        self._waiting: deque[Event] = deque()
        self._delivering = False
        self._stop_wanted = self._over = False
        self._losses, self._bills = Losses(), Bills()
        self._leaving: dict[Address, str] = {}
        self._traced, self._doings = traced, DoingsOfAll(SPANS_KEPT if traced else 0)
        self._final_counters: dict[str, Any] = {}
        self._recorded = Epoch(start.epochs)
        self._post = Post(RUN, _NO_LIFE, crew.machine, self._hear, self._happened.put)

    def prepare(self) -> list[str]:
        """Start the servers and lay out the work; what each graph server has and needs, in words."""
        try:
            shares = self._prepare()
            return [f"{each} on {self.servers[each].where}: {share}" for each, share in shares.items()]
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> dict[Address, Share]:
        options = self._plan.options
        graph = [Address("graph", ServerId(each)) for each in range(self._plan.partition.parts)]
        weight = [Address("weight", ServerId(each)) for each in range(options.weight_servers)]
        self.servers = self._crew.employ(self._losses.employ([*graph, *weight]).items())
        shares = {address: self._surely(address, lambda server: server.share()) for address in graph}
        self._bounds = [shares[address].bounds for address in graph]
        reads = [self._surely(address, lambda server: server.reads(self._bounds)) for address in graph]
        together = Reads(*(np.concatenate([each[way] for each in reads]) for way in range(2)))
        self._setup = self._plan.setup(layout_of(together, self._bounds))
        self._run = self._make_machine(self._setup)
        for address in (*graph, *weight):
            self._surely(address, lambda server: server.join(self._setup, self._members()))
        self._post.meet(self._members())
        return shares

    def _surely(self, address: Address, call: Callable[[Server], T]) -> T:
        """Have a server answer before the run begins; one that is lost is replaced."""
        while True:
            try:
                return call(self.servers[address])
            except ServerLost as lost:
                self._losses.lose(address, self._losses.life(address), str(lost), elsewhere=False)
                if self._losses.too_many(address):
                    raise self._hopeless(address, str(lost)) from lost
            with suppress(ServerLost):
                self.servers[address] = self._crew.replace(
                    address, self._losses.life(address), elsewhere=False
                )
                self._announce(self.servers[address].member)
            self._losses.back(address)

    def events(self) -> Iterator[Happening]:
        """Run; every epoch's record, every checkpoint, every loss, and last the outcome.

        Close the iterator to stop the run at once.
        """
        self._marked = time.perf_counter()
        watch = threading.Thread(target=self._watch, name="siafu-watch", daemon=True)
        try:
            self._post.start()
            watch.start()
            with self._lock:
                for instruction in self._run.begin():
                    self._obey(instruction)
            while True:
                happened = self._happened.get()
                if isinstance(happened, BaseException):
                    raise happened
                if happened is None:
                    self._ask_to_stop()
                    continue
                yield happened
                if isinstance(happened, Outcome):
                    return
        finally:
            self.close()

    @property
    def refusals(self) -> Refusals:
        """Letters that were not taken: from those who were replaced, and from strangers."""
        return self._post.refusals

    def stop_soon(self) -> None:
        """End the run at an epoch's end, after a checkpoint. May be called from a signal's handler."""
        self._stop_wanted = True
        self._happened.put(None)

    def counters(self) -> dict[str, Any]:
        """What was counted in this session, as of the last checkpoint or the end."""
        return self._final_counters or self._saved_counters

    def close(self) -> None:
        """End all servers."""
        self._over = True
        for server in self.servers.values():
            server.stop()
        self._post.stop()
        self._crew.close()

    # What the run's machine says

    def _deliver(self, event: Event) -> None:
        """Give an event to the run's machine, and do what it says; what follows from that comes after it."""
        with self._lock:
            self._waiting.append(event)
            if self._delivering:
                return
            self._delivering = True
            try:
                while self._waiting and not self._over:
                    for instruction in self._run.handle(self._waiting.popleft()):
                        self._obey(instruction)
            finally:
                self._delivering = False

    def _obey(self, what: Instruction) -> None:
        match what:
            case Send():
                if isinstance(what.message, Proceed):
                    self._note_recovered()
                if isinstance(what.message, Begin) and what.to.role == "graph" and self._traced:
                    self._post.send(what.to, Letter(TraceWanted(Incarnation(-1))))
                self._post.send(what.to, Letter(what.message, self._beside(what)))
            case RecordEpoch():
                self._record(what)
            case SaveCheckpoint():
                self._collect(what.version, lambda found: self._save(what.epochs, found), last=False)
            case Rewind():
                self._rewind(what.epochs)
            case Replace():
                threading.Thread(
                    target=self._replace, args=(what.server,), name="siafu-replace", daemon=True
                ).start()
            case Stop():
                if what.version is None:
                    self._finish(Outcome(what, None))
                else:
                    self._collect(what.version, lambda found: self._end(what, found), last=True)
            case _:
                raise NotImplementedError(f"the cluster's driver cannot {what}")

    def _beside(self, send: Send) -> dict[str, Array]:
        if isinstance(send.message, Begin) and send.to.role == "weight":
            return arrays(self._saved.weights, WEIGHT) | arrays(self._saved.optimizer, STATE)
        return {}

    def _record(self, what: RecordEpoch) -> None:
        now = time.perf_counter()
        self._recorded = Epoch(what.epoch + 1)
        self._losses.epoch_ended()
        self._happened.put(
            EpochRecord(
                what.epoch,
                what.training,
                what.evaluation,
                now - self._marked,
                0.0,
                {},
                self._doings.take(what.epoch),
            )
        )
        self._marked = now
        if self._stop_wanted:
            self._ask_to_stop()
        elif self._checkpoint_due():
            self._deliver(CheckpointAsked(self._run.incarnation))

    def _ask_to_stop(self) -> None:
        if self._stop_wanted:
            self._stop_wanted = False
            self._deliver(StopAsked(self._run.incarnation))

    # Checkpoints

    def _collect(self, version: Version, then: Callable[[Collection], None], *, last: bool) -> None:
        """Ask all servers what they counted, and weight servers for a version; `then` hears it all together."""
        self._numbers += 1
        self._collection = Collection(self._numbers, version, then)
        wanted = ReportWanted(self._run.incarnation, self._numbers, version, last)
        for address in self.servers:
            self._post.send(address, Letter(wanted))

    def _reported(self, report: Report, letter: Letter) -> None:
        with self._lock:
            wanted = self._collection
            if wanted is None or report.number != wanted.number or report.sender in wanted.answered:
                return
            counters = json.loads(report.counters)
            if (usage := counters.pop("lambda", None)) is not None:
                self._bills.note(report.sender, self._losses.life(report.sender), usage)
            wanted.take(report.sender, counters, letter.tensors)
            if wanted.answered == set(self.servers):
                self._collection = None
                wanted.then(wanted)

    def _snapshot(self, epochs: Epoch, found: Collection) -> Snapshot:
        counters = added(self._counters_at_begin, found.counters)
        counters.pop("busy_seconds", None)
        return Snapshot(
            epochs,
            found.version,
            found.weights,
            found.optimizer,
            counters | self._losses.counters | self._bills.counters(),
            self._best,
        )

    def _save(self, epochs: Epoch, found: Collection) -> None:
        self._saved = self._snapshot(epochs, found)
        self._saved_counters = dict(self._saved.counters)
        self._happened.put(self._saved)
        self._deliver(CheckpointSaved(self._run.incarnation, epochs))
        leaving, self._leaving = self._leaving, {}
        for server, why in leaving.items():
            self._lose(server, self._losses.life(server), why, elsewhere=True)

    def _end(self, stop: Stop, found: Collection) -> None:
        last = self._snapshot(stop.epochs, found)
        self._final_counters = dict(last.counters)
        self._finish(Outcome(stop, last))

    def _finish(self, outcome: Outcome) -> None:
        self._over = True
        self._happened.put(outcome)

    # What comes

    def _hear(self, sender: Address, letter: Letter) -> None:
        match letter.event:
            case Report() as report:
                self._reported(report, letter)
            case Did() as did:
                with self._lock:
                    if did.incarnation == self._run.incarnation:
                        self._doings.hear(did.sender, did.told, letter.tensors)
            case LogLine() as line:
                self._logs.write(line.sender, line.text)
            case Unreachable() as complaint:
                if complaint.seconds > self._lost_after:
                    why = f"{complaint.sender} could not reach it for {complaint.seconds:.0f} s"
                    self._lose(complaint.server, complaint.life, why, elsewhere=True)
            case Leaving() as leaving:
                self._expect_to_lose(leaving.sender, leaving.why)
            case Failed() as failed:
                kind = BadInput if failed.given else SiafuError
                told = failed.why if failed.given else f"{failed.sender} failed: {failed.why}"
                self._happened.put(kind(told))
            case BestKept() as kept:
                with self._lock:
                    if kept.incarnation == self._run.incarnation:
                        self._best = tensors_of(letter.tensors)
                    self._deliver(kept)
            case event:
                self._deliver(event)

    # Servers that are lost

    def _watch(self) -> None:
        """See to it that the servers are there; in a thread of its own."""
        pulse = 0.0
        try:
            while not self._over:
                time.sleep(_WATCH_SECONDS)
                for loss in self._crew.losses():
                    self._note_loss(loss)
                now = time.monotonic()
                if now - pulse > _PULSE_SECONDS:
                    pulse = now
                    self._take_pulse()
        except BaseException as error:
            self._happened.put(error)

    def _take_pulse(self) -> None:
        with self._lock:
            present = {
                each: self._losses.life(each) for each in self.servers if not self._losses.is_gone(each)
            }
            alive = Letter(Alive(self._run.incarnation))
        for address, life in present.items():
            self._post.send(address, alive)
            silence = self._post.silence(address)
            if silence > self._lost_after:
                self._lose(address, life, f"no word from it for {silence:.0f} s", elsewhere=True)

    def _note_loss(self, loss: Loss) -> None:
        with self._lock:
            if self._over or loss.life != self._losses.life(loss.server):
                return
        if loss.final:
            self._happened.put(
                BadInput(loss.why) if loss.given else SiafuError(f"{loss.server} failed: {loss.why}")
            )
        else:
            self._lose(loss.server, loss.life, loss.why, elsewhere=False)

    def _lose(self, server: Address, life: int, why: str, *, elsewhere: bool) -> None:
        """A server is gone, or as good as gone: go back to what was saved, and have another in its place."""
        with self._lock:
            if self._over or not self._losses.lose(server, life, why, elsewhere=elsewhere):
                return
            self._logs.write(server, f"lost: {why}")
            if self._losses.too_many(server):
                self._happened.put(self._hopeless(server, why))
                return
            self._collection = None
            self._leaving.pop(server, None)
            self._deliver(ServerGone(self._run.incarnation, server))

    def _hopeless(self, server: Address, why: str) -> SiafuError:
        return SiafuError(
            f"{server} was lost {MOST_LOSSES + 1} times without an epoch in between, last: {why}; "
            "see its log in the run's directory, and go on with --resume"
        )

    def _expect_to_lose(self, server: Address, why: str) -> None:
        """A server will be taken away soon: save, and then replace it, so that nothing is lost."""
        with self._lock:
            if self._over or self._losses.is_gone(server):
                return
            self._leaving[server] = why
            self._logs.write(server, why)
            self._deliver(CheckpointAsked(self._run.incarnation))

    def _rewind(self, epochs: Epoch) -> None:
        self._losses.rewind(self._recorded, epochs)
        self._doings.forget()
        self._recorded = epochs
        self._counters_at_begin = dict(self._saved_counters)
        self._best = None if self._saved.best is None else dict(self._saved.best)

    def _replace(self, server: Address) -> None:
        """Start another; the rest of the run waits for it. In a thread of its own."""
        with self._lock:
            gone, old = self._losses.gone(server), self.servers[server]
        try:
            old.kill()
            fresh = self._crew.replace(server, gone.life, elsewhere=gone.elsewhere)
            self._introduce(server, fresh)
        except ServerLost as lost:
            with self._lock:
                self._losses.back(server)
                self._lose(server, gone.life, str(lost), elsewhere=False)
        except BaseException as error:
            self._happened.put(error)

    def _introduce(self, server: Address, fresh: Server) -> None:
        """Make it and the others known to each other; the others first, so that none turns it away."""
        if server.role == "graph" and fresh.share().bounds != self._bounds[server.index]:
            raise SiafuError(f"{server} was lost, and the store is another by now: go on with --resume")
        with self._lock:
            self.servers[server] = fresh
            self._announce(fresh.member)
        fresh.join(self._setup, self._members())
        with self._lock:
            again = self._losses.back(server)
        if again is not None:
            raise ServerLost(again)

    def _announce(self, member: Member) -> None:
        """Tell all the others. Who is being replaced itself finds the letter when it begins."""
        self._post.meet([member])
        replaced = Letter(Replaced(Incarnation(-1), member))
        for address in self.servers:
            if address != member.address:
                self._post.send(address, replaced)

    def _members(self) -> list[Member]:
        with self._lock:
            return [self._post.member, *(each.member for each in self.servers.values())]

    def _note_recovered(self) -> None:
        """All servers are there and go on."""
        if (rewound := self._losses.recovered()) is not None:
            self._happened.put(rewound)
            self._marked = time.perf_counter()

"""ClusterRuntime: the driver of a run whose servers are other processes. It holds the run's machine and no rows."""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from siafu.errors import BadInput, SiafuError
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
from siafu.pipeline.ids import RUN, Address, Epoch, ServerId, Version
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
from siafu.runtime.cluster.crew import Crew, Server, ServerLost
from siafu.runtime.cluster.graph_host import Share
from siafu.runtime.cluster.host import arrays, tensors_of
from siafu.runtime.cluster.letters import Letter
from siafu.runtime.cluster.post import Member, Post
from siafu.runtime.cluster.requests import (
    Alive,
    Failed,
    Leaving,
    LogLine,
    Report,
    ReportWanted,
    Unreachable,
)
from siafu.runtime.cluster.weight_host import STATE, WEIGHT
from siafu.runtime.counting import added
from siafu.runtime.happenings import EpochRecord, Happening, Outcome, Rewound, Snapshot
from siafu.server.assembly import layout_of
from siafu.server.plan import Plan
from siafu.wire.tensors import Array

LOST_AFTER_SECONDS = 10.0
"""A server that is not heard of for so long is lost. One whose process ends is noticed sooner."""

_PULSE_SECONDS = 1.0
_WATCH_SECONDS = 0.2
_MOST_LOSSES = 5
"""Of one server, without an epoch in between."""

_NO_LIFE = 0


@dataclass(frozen=True, slots=True)
class _Gone:
    """A server that is being replaced."""

    server: Address
    since: float
    why: str
    elsewhere: bool


class _Collection:
    """Reports that are waited for."""

    def __init__(self, number: int, version: Version, then: Callable[["_Collection"], None]) -> None:
        self.number, self.version, self.then = number, version, then
        self.weights: dict[str, Tensor] = {}
        self.optimizer: dict[str, Tensor] = {}
        self.counters: dict[str, Any] = {}
        self.answered: set[Address] = set()


class ClusterRuntime:
    """Drives a run on a crew; `events` gives what happens, as it happens.

    plan:      what every server is made by
    crew:      starts and watches the processes
    machine:   makes the run's machine for a setup
    start:     the weights and the optimizer's state to start from
    log:       a directory for the servers' logs; None: they are not kept
    checkpoint_due: asked after every epoch: whether a checkpoint is wanted next
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
    ) -> None:
        self.servers: dict[Address, Server] = {}
        self._plan, self._crew, self._make_machine = plan, crew, machine
        self._saved = start
        self._saved_counters: dict[str, Any] = {}
        self._counters_at_begin: dict[str, Any] = {}
        self._log, self._checkpoint_due, self._lost_after = log, checkpoint_due, lost_after
        self._happened: queue.SimpleQueue[Happening | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._best: dict[str, Tensor] | None = None
        self._collection: _Collection | None = None
        self._numbers = 0
        self._stop_wanted = self._over = False
        self._lives: dict[Address, int] = {}
        self._gone: dict[Address, _Gone] = {}
        self._replaced: list[_Gone] = []
        self._leaving: dict[Address, str] = {}
        self._losses_in_a_row: dict[Address, int] = {}
        self._rewound: tuple[Epoch, Epoch] | None = None
        self._lost_counters: dict[str, Any] = {}
        self._final_counters: dict[str, Any] = {}
        self._recorded = Epoch(start.epochs)
        self._post = Post(RUN, _NO_LIFE, crew.machine, self._hear, self._happened.put)

    def prepare(self) -> dict[Address, Share]:
        """Start the servers and lay out the work; what each graph server has."""
        try:
            return self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> dict[Address, Share]:
        options = self._plan.options
        graph = [Address("graph", ServerId(each)) for each in range(self._plan.partition.parts)]
        weight = [Address("weight", ServerId(each)) for each in range(options.weight_servers)]
        self._lives = dict.fromkeys([*graph, *weight], 1)
        self.servers = self._crew.employ(self._lives.items())
        shares = {address: self.servers[address].share() for address in graph}
        self._bounds = [shares[address].bounds for address in graph]
        reads = [self.servers[address].reads(self._bounds) for address in graph]
        together = Reads(*(np.concatenate([each[way] for each in reads]) for way in range(2)))
        self._setup = self._plan.setup(layout_of(together, self._bounds))
        self._run = self._make_machine(self._setup)
        for server in self.servers.values():
            server.join(self._setup, self._members())
        self._post.meet(self._members())
        return shares

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
                self._obey_all(self._run.begin())
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
        with self._lock:
            if not self._over:
                self._obey_all(self._run.handle(event))

    def _obey_all(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            self._obey(each)

    def _obey(self, what: Instruction) -> None:
        match what:
            case Send():
                if isinstance(what.message, Proceed):
                    self._note_recovered()
                self._post.send(what.to, Letter(what.message, self._beside(what)))
            case RecordEpoch():
                self._record(what)
            case SaveCheckpoint():
                self._collect(what.version, lambda found: self._save(what.epochs, found))
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
                    self._collect(what.version, lambda found: self._end(what, found))
            case _:
                raise NotImplementedError(f"the cluster's driver cannot {what}")

    def _beside(self, send: Send) -> dict[str, Array]:
        if isinstance(send.message, Begin) and send.to.role == "weight":
            return arrays(self._saved.weights, WEIGHT) | arrays(self._saved.optimizer, STATE)
        return {}

    def _record(self, what: RecordEpoch) -> None:
        now = time.perf_counter()
        self._recorded = Epoch(what.epoch + 1)
        self._losses_in_a_row.clear()
        self._happened.put(
            EpochRecord(what.epoch, what.training, what.evaluation, now - self._marked, 0.0, {})
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

    def _collect(self, version: Version, then: Callable[[_Collection], None]) -> None:
        """Ask all servers what they counted, and weight servers for a version; `then` hears it all together."""
        self._numbers += 1
        self._collection = _Collection(self._numbers, version, then)
        wanted = ReportWanted(self._run.incarnation, self._numbers, version)
        for address in self.servers:
            self._post.send(address, Letter(wanted))

    def _reported(self, report: Report, letter: Letter) -> None:
        with self._lock:
            wanted = self._collection
            if wanted is None or report.number != wanted.number or report.sender in wanted.answered:
                return
            wanted.answered.add(report.sender)
            wanted.counters = added(wanted.counters, json.loads(report.counters))
            wanted.weights |= tensors_of(letter.tensors, WEIGHT)
            wanted.optimizer |= tensors_of(letter.tensors, STATE)
            if wanted.answered == set(self.servers):
                self._collection = None
                wanted.then(wanted)

    def _snapshot(self, epochs: Epoch, found: _Collection) -> Snapshot:
        counters = added(self._counters_at_begin, found.counters)
        counters.pop("busy_seconds", None)
        return Snapshot(
            epochs, found.version, found.weights, found.optimizer, counters | self._lost_counters, self._best
        )

    def _save(self, epochs: Epoch, found: _Collection) -> None:
        self._saved = self._snapshot(epochs, found)
        self._saved_counters = dict(self._saved.counters)
        self._happened.put(self._saved)
        self._deliver(CheckpointSaved(self._run.incarnation, epochs))
        leaving, self._leaving = self._leaving, {}
        for server, why in leaving.items():
            self._lose(server, why, elsewhere=True)

    def _end(self, stop: Stop, found: _Collection) -> None:
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
            case LogLine() as line:
                self._write_log(line.sender, line.text)
            case Unreachable() as complaint:
                if complaint.seconds > self._lost_after:
                    why = f"{complaint.sender} could not reach it for {complaint.seconds:.0f} s"
                    self._lose(complaint.server, why, elsewhere=True)
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
                    if self._lives.get(loss.server) == loss.life:
                        self._note_loss(loss.server, loss.why, final=loss.final, given=loss.given)
                now = time.monotonic()
                if now - pulse > _PULSE_SECONDS:
                    pulse = now
                    self._take_pulse()
        except BaseException as error:
            self._happened.put(error)

    def _take_pulse(self) -> None:
        with self._lock:
            present = [each for each in self.servers if each not in self._gone]
            alive = Letter(Alive(self._run.incarnation))
        for address in present:
            self._post.send(address, alive)
            silence = self._post.silence(address)
            if silence > self._lost_after:
                self._lose(address, f"no word from it for {silence:.0f} s", elsewhere=True)

    def _note_loss(self, server: Address, why: str, *, final: bool, given: bool) -> None:
        if self._over:
            return
        if final:
            self._happened.put(BadInput(why) if given else SiafuError(f"{server} failed: {why}"))
        else:
            self._lose(server, why, elsewhere=False)

    def _lose(self, server: Address, why: str, *, elsewhere: bool) -> None:
        """A server is gone, or as good as gone: go back to what was saved, and have another in its place."""
        with self._lock:
            if self._over or server in self._gone:
                return
            self._gone[server] = _Gone(server, time.monotonic(), why, elsewhere)
            self._losses_in_a_row[server] = self._losses_in_a_row.get(server, 0) + 1
            if self._losses_in_a_row[server] > _MOST_LOSSES:
                self._happened.put(
                    SiafuError(
                        f"{server} was lost {_MOST_LOSSES + 1} times without an epoch in between, last: {why}; "
                        "see its log in the run's directory, and go on with --resume"
                    )
                )
                return
            self._write_log(server, f"lost: {why}")
            self._collection = None
            self._deliver(ServerGone(self._run.incarnation, server))

    def _expect_to_lose(self, server: Address, why: str) -> None:
        """A server will be taken away soon: save, and then replace it, so that nothing is lost."""
        with self._lock:
            if self._over or server in self._gone:
                return
            self._leaving[server] = why
            self._write_log(server, why)
            self._deliver(CheckpointAsked(self._run.incarnation))

    def _rewind(self, epochs: Epoch) -> None:
        before = self._rewound[0] if self._rewound else self._recorded
        self._rewound = before, epochs
        self._recorded = epochs
        self._counters_at_begin = dict(self._saved_counters)
        self._best = None if self._saved.best is None else dict(self._saved.best)

    def _replace(self, server: Address) -> None:
        """Start another; the rest of the run waits for it. In a thread of its own."""
        try:
            with self._lock:
                self._lives[server] += 1
                life, old, gone = self._lives[server], self.servers[server], self._gone[server]
            old.kill()
            fresh = self._crew.replace(server, life, elsewhere=gone.elsewhere)
            if server.role == "graph":
                fresh.share()
                fresh.reads(self._bounds)
            with self._lock:
                self.servers[server] = fresh
                others = [each for address, each in self.servers.items() if address not in self._gone]
            fresh.join(self._setup, self._members())
            for each in others:
                with suppress(ServerLost):  # it is missed by others, or will be
                    each.meet([fresh.member])
            self._post.meet([fresh.member])
            with self._lock:
                self._replaced.append(self._gone.pop(server))
            fresh.meet(self._members())  # others may have been replaced meanwhile
        except ServerLost as lost:
            with self._lock:
                self._gone.pop(server, None)
            self._lose(server, str(lost), elsewhere=False)
        except BaseException as error:
            self._happened.put(error)

    def _members(self) -> list[Member]:
        with self._lock:
            return [self._post.member, *(each.member for each in self.servers.values())]

    def _note_recovered(self) -> None:
        """All servers are there and go on."""
        if self._rewound is None:
            return
        before, epochs = self._rewound
        now = time.monotonic()
        told = [
            f"{each.server} was lost ({each.why}) and replaced in {now - each.since:.1f} s"
            for each in self._replaced
        ]
        slowest = max((now - each.since for each in self._replaced), default=0.0)
        self._lost_counters = {
            "servers_lost": self._lost_counters.get("servers_lost", 0) + len(told),
            "epochs_lost": self._lost_counters.get("epochs_lost", 0) + before - epochs,
            "recovery_seconds": max(self._lost_counters.get("recovery_seconds", 0.0), slowest),
        }
        again = "" if before == epochs else f"; epochs {epochs + 1} to {before} are trained again"
        self._happened.put(Rewound(epochs, "; ".join(told) + again))
        self._rewound, self._replaced = None, []
        self._marked = time.perf_counter()

    def _write_log(self, server: Address, text: str) -> None:
        if self._log is None:
            return
        self._log.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%H:%M:%S")
        with (self._log / f"{server.role}-{server.index}.log").open("a") as file:
            file.write(f"{stamp} {text}\n")


def describe(shares: Mapping[Address, Share], servers: Mapping[Address, Server]) -> list[str]:
    """What each server has and needs, in words, before the run begins."""
    lines = []
    for address, share in shares.items():
        lines.append(
            f"{address} on {servers[address].where}: {share.vertices:,} vertices, {share.edges:,} edges, "
            f"{share.ghosts:,} ghosts; {share.share_bytes / 1e6:,.1f} MB of graph, "
            f"{share.activation_bytes / 1e6:,.1f} MB of rows"
        )
    return lines

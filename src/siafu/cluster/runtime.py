"""ClusterRuntime: the driver of a run whose servers are other processes. It starts, watches and replaces them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.crew import Crew, Server, ServerLost
from siafu.cluster.logs import Logs
from siafu.cluster.post.post import WirePost
from siafu.cluster.post.requests import (
    Alive,
    Leaving,
    LogLine,
    ServerFailed,
    ServerUnreachable,
    StateTold,
    StateWanted,
)
from siafu.cluster.replacements.eager_copies import EagerCopies
from siafu.cluster.replacements.losses import Losses
from siafu.cluster.replacements.replacements import ServerReplacements
from siafu.cluster.replacements.seats import WarmSeats
from siafu.cluster.standstill import Standstill
from siafu.cluster.stations.graph_station import Share
from siafu.graph.partition.reads import Reads
from siafu.pipeline.ids import FIRST_LIFE, RUN, Address, ServerId
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.setup import Setup
from siafu.runtime.happenings import EpochRecord, Happening, Outcome, Snapshot
from siafu.runtime.hosts.run_host import RunHost
from siafu.runtime.letter import Letter
from siafu.runtime.story import STANDS_STILL, Story, stuck
from siafu.server.assembly import layout_of
from siafu.server.plan import ServerPlan
from siafu.wire.refusal import Refusals

LOST_AFTER_SECONDS = 10.0
"""A server that is not heard of for so long is lost. One whose process ends is noticed sooner."""

LOST_SOON_SECONDS = 3.0
"""The same where warm copies wait: one that is taken for lost wrongly costs its share of an epoch."""

LOOK_SECONDS = 5.0
"""Seconds without news of a run until its servers are asked whether anything is under way."""

_PULSE_SECONDS = 1.0
_WATCH_SECONDS = 0.2
T = TypeVar("T")


class ClusterRuntime(ServerReplacements):
    """Drives a run on a crew; `events` gives what happens, as it happens.

    plan:      parts that every server is made from
    crew:      starts and watches the processes
    machine:   makes the run's machine for a setup
    start:     the weights and the optimizer's state to start from
    log:       a directory for the servers' logs; None: they are not kept
    checkpoint_due: called after every epoch: whether to make a checkpoint
    redundancy: number of warm copies of each server, on other machines; "eager": one, which runs forward tasks beforehand
    lost_after: seconds of silence until a server is lost
    traced:    whether records tell of every task of the graph servers

    story:     events of the run's machine; servers write their own to their logs
    """

    def __init__(
        self,
        plan: ServerPlan,
        crew: Crew,
        machine: Callable[[Setup], RunMachine],
        start: Snapshot,
        *,
        log: Path | None = None,
        checkpoint_due: Callable[[], bool] = lambda: False,
        redundancy: int | Literal["eager"] = 0,
        lost_after: float | None = None,
        look_after: float = LOOK_SECONDS,
        traced: bool = False,
    ) -> None:
        self.servers: dict[Address, Server] = {}
        self._plan, self._crew, self._make_machine, self._start = plan, crew, machine, start
        self._logs, self._checkpoint_due = Logs(log), checkpoint_due
        self._lost_after = lost_after or (LOST_SOON_SECONDS if redundancy else LOST_AFTER_SECONDS)
        self._traced, self.story = traced, Story()
        self._happened: queue.SimpleQueue[Happening | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._over = False
        self.reasons: list[str] = []
        self._losses = Losses()
        self._look_after, self._standstill = look_after, Standstill()
        self._leaving: dict[Address, str] = {}
        self._run: RunHost | None = None
        self._eager = redundancy == "eager"
        self.copies = EagerCopies(self)
        copies = 1 if redundancy == "eager" else redundancy
        self.seats = WarmSeats(
            crew, copies, self._machines, self._ask_to_hand_over, self._logs.write, self.copies
        )
        self._post = WirePost(RUN, FIRST_LIFE, crew.machine, self._hear, self._happened.put)

    def prepare(self) -> list[str]:
        """Start the servers and lay out the work; returns each graph server's part and memory, in words."""
        try:
            shares = self._prepare()
            self.reasons = [f"{each}: {why}" for each, share in shares.items() for why in share.choices]
            told = [f"{each} on {self.servers[each].where}: {share}" for each, share in shares.items()]
            eager = self._about_eager()
            return [*told, *self.seats.begin(self.servers, shares), *eager]
        except BaseException:
            self.close()
            raise

    def _about_eager(self) -> list[str]:
        """Let copies be eager if that was asked for, and tell of it; or why they are not."""
        if not self._eager:
            return []
        if self._setup.ahead is None:
            why = (
                "rows cannot be sent again by columns, with gradients in their place or on disk: give --layout vertices, "
                "or more --memory"
            )
        elif self._plan.options.lambdas != "off":
            why = "tensor tasks are on Lambdas"
        else:
            self.copies.setup = self._setup
            return [
                "copies of graph servers are eager: each runs its forward tasks in idle time, with rows of its own"
            ]
        return [f"copies are warm, not eager: {why}"]

    def _prepare(self) -> dict[Address, Share]:
        options = self._plan.options
        graph = [Address("graph", ServerId(each)) for each in range(self._plan.partition.parts)]
        weight = [Address("weight", ServerId(each)) for each in range(options.weight_servers)]
        self.servers = dict(self._crew.employ(self._losses.employ([*graph, *weight]).items()))
        shares = {address: self._surely(address, lambda server: server.share()) for address in graph}
        self._bounds = [shares[address].bounds for address in graph]
        reads = [self._surely(address, lambda server: server.reads(self._bounds)) for address in graph]
        together = Reads(*(np.concatenate([each[way] for each in reads]) for way in range(2)))
        self._setup = self._plan.setup(layout_of(together, self._bounds), rows_travel=True)
        self.seats.may_move = self._setup.resumes
        self._run = RunHost(
            self._make_machine(self._setup),
            self._post,
            self.servers,
            self._start,
            self._happened.put,
            threads=sum(share.threads for share in shares.values()),
            traced=self._traced,
            recovery=self,
            checkpoint_due=self._checkpoint_due,
            watch=self.story.note,
        )
        self._lock = self._run.lock
        for address in (*graph, *weight):
            self._surely(address, lambda server: server.join(self._setup, self.members()))
        self._post.meet(self.members())
        return shares

    def _surely(self, address: Address, call: Callable[[Server], T]) -> T:
        """Call a server before the run begins; a lost one is replaced."""
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
        assert self._run is not None
        watch = threading.Thread(target=self._watch, name="siafu-watch", daemon=True)
        try:
            self._post.start()
            self._run.begin()
            watch.start()
            self.seats.start()
            while True:
                try:
                    happened = self._happened.get(timeout=self._look_after)
                except queue.Empty:
                    self._look()
                    continue
                if isinstance(happened, BaseException):
                    raise happened
                if happened is None:
                    self._run.stop_if_wanted()
                    continue
                yield happened
                if isinstance(happened, Outcome):
                    return
        finally:
            self.close()

    def _look(self) -> None:
        """Refuse to wait for a run in which nothing is under way."""
        assert self._run is not None
        with self._lock:
            if self._is_over or self._leaving or any(self._losses.is_gone(each) for each in self.servers):
                self._standstill.forget()
                return
            waiting = self._standstill.ask(self.servers.keys(), self._run.events)
            wanted = Letter(StateWanted(self._standstill.number))
        if waiting is not None:
            raise SiafuError(stuck(STANDS_STILL, self.story, [*self.waiting(), *waiting]))
        for server in self.servers:
            self._post.send(server, wanted)

    @property
    def refusals(self) -> Refusals:
        """Letters that were refused: from replaced servers, and from strangers."""
        return self._post.refusals

    def stop_soon(self) -> None:
        """End the run at an epoch's end, after a checkpoint. May be called from a signal's handler."""
        if self._run is not None:
            self._run.stop_at_epoch()
        self._happened.put(None)

    def close_epoch(self, record: EpochRecord, *, stop: bool) -> None:
        """The record of an epoch was seen: the next may begin, or the run ends."""
        if self._run is not None:
            self._run.close_epoch(record, stop)

    def counters(self) -> dict[str, Any]:
        """Counters of this session, as of the last checkpoint or the end."""
        return {} if self._run is None else self._run.counters()

    def waiting(self) -> list[str]:
        """Events that the run's machine waits for, in words."""
        return [] if self._run is None else self._run.waiting()

    def close(self) -> None:
        """End all servers."""
        self._over = True
        self.seats.close()
        for server in self.servers.values():
            server.stop()
        self._post.stop()
        self._crew.close()

    # What comes

    def _hear(self, sender: Address, letter: Letter) -> None:
        match letter.event:
            case StateTold() as state:
                with self._lock:
                    self._standstill.take(state)
            case LogLine() as line:
                self._logs.write(line.sender, line.text)
            case ServerUnreachable() as complaint if complaint.server.role == "copy":
                if complaint.seconds > self._lost_after:
                    self._lose_copy(complaint.server, complaint.life, "it acknowledges nothing")
            case ServerFailed() as failed if failed.sender.role == "copy":
                self._lose_copy(failed.sender, None, failed.why)
            case ServerUnreachable() as complaint:
                if complaint.seconds > self._lost_after:
                    why = f"{complaint.sender} could not reach it for {complaint.seconds:.0f} s"
                    self._lose(complaint.server, complaint.life, why, elsewhere=True)
            case Leaving() as leaving:
                self._expect_to_lose(leaving.sender, leaving.why)
            case ServerFailed() as failed:
                kind = BadInput if failed.given else SiafuError
                told = failed.why if failed.given else f"{failed.sender} failed: {failed.why}"
                self._happened.put(kind(told))
            case _:
                assert self._run is not None
                self._run.hear(sender, letter)

    # Servers that are lost

    def _watch(self) -> None:
        """Watch the servers; in a thread of its own."""
        pulse = 0.0
        try:
            while not self._is_over:
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
            alive = Letter(Alive())
        for address, life in present.items():
            self._post.send(address, alive)
            silence = self._post.silence(address)
            if silence > self._lost_after:
                self._lose(address, life, f"no word from it for {silence:.0f} s", elsewhere=True)

"""ClusterRuntime: the driver of a run whose servers are other processes. It starts, watches and replaces them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.crew import Crew, Loss, Server, ServerLost
from siafu.cluster.graph_station import Share
from siafu.cluster.logs import Logs
from siafu.cluster.losses import MOST_LOSSES, Losses
from siafu.cluster.member import Member
from siafu.cluster.post import WirePost
from siafu.cluster.requests import (
    Alive,
    Leaving,
    LogLine,
    Replaced,
    ServerFailed,
    ServerUnreachable,
    StateTold,
    StateWanted,
)
from siafu.cluster.standstill import Standstill
from siafu.graph.partition.reads import Reads
from siafu.pipeline.events import CheckpointAsked, ServerGone
from siafu.pipeline.ids import FIRST_LIFE, RUN, Address, Epoch, Life, ServerId
from siafu.pipeline.run import RunMachine
from siafu.pipeline.setup import Setup
from siafu.runtime.happenings import EpochRecord, Happening, Outcome, Snapshot
from siafu.runtime.letter import Letter
from siafu.runtime.run_host import RunHost
from siafu.runtime.story import STANDS_STILL, Story, stuck
from siafu.server.assembly import layout_of
from siafu.server.plan import ServerPlan
from siafu.wire.refusal import Refusals

LOST_AFTER_SECONDS = 10.0
"""A server that is not heard of for so long is lost. One whose process ends is noticed sooner."""

LOOK_SECONDS = 5.0
"""Seconds without news of a run until its servers are asked whether anything is under way."""

_PULSE_SECONDS = 1.0
_WATCH_SECONDS = 0.2
T = TypeVar("T")


class ClusterRuntime:
    """Drives a run on a crew; `events` gives what happens, as it happens.

    plan:      parts that every server is made from
    crew:      starts and watches the processes
    machine:   makes the run's machine for a setup
    start:     the weights and the optimizer's state to start from
    log:       a directory for the servers' logs; None: they are not kept
    checkpoint_due: called after every epoch: whether to make a checkpoint
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
        lost_after: float = LOST_AFTER_SECONDS,
        look_after: float = LOOK_SECONDS,
        traced: bool = False,
    ) -> None:
        self.servers: dict[Address, Server] = {}
        self._plan, self._crew, self._make_machine, self._start = plan, crew, machine, start
        self._logs, self._checkpoint_due, self._lost_after = Logs(log), checkpoint_due, lost_after
        self._traced, self.story = traced, Story()
        self._happened: queue.SimpleQueue[Happening | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._over = False
        self._losses = Losses()
        self._look_after, self._standstill = look_after, Standstill()
        self._leaving: dict[Address, str] = {}
        self._run: RunHost | None = None
        self._post = WirePost(RUN, FIRST_LIFE, crew.machine, self._hear, self._happened.put)

    def prepare(self) -> list[str]:
        """Start the servers and lay out the work; returns each graph server's part and memory, in words."""
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
        self.servers = dict(self._crew.employ(self._losses.employ([*graph, *weight]).items()))
        shares = {address: self._surely(address, lambda server: server.share()) for address in graph}
        self._bounds = [shares[address].bounds for address in graph]
        reads = [self._surely(address, lambda server: server.reads(self._bounds)) for address in graph]
        together = Reads(*(np.concatenate([each[way] for each in reads]) for way in range(2)))
        self._setup = self._plan.setup(layout_of(together, self._bounds), rows_travel=True)
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
            self._surely(address, lambda server: server.join(self._setup, self._members()))
        self._post.meet(self._members())
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
        for server in self.servers.values():
            server.stop()
        self._post.stop()
        self._crew.close()

    # What the run wants of who sees to its servers

    @property
    def loss_counters(self) -> dict[str, Any]:
        return self._losses.counters

    def replace(self, server: Address) -> None:
        threading.Thread(target=self._replace, args=(server,), name="siafu-replace", daemon=True).start()

    def rewound(self, recorded: Epoch, epochs: Epoch) -> None:
        self._losses.rewind(recorded, epochs)

    def resumed(self, recorded: Epoch) -> None:
        self._losses.rewind(recorded, recorded, again=False)

    def proceeding(self) -> None:
        """All servers are there and go on."""
        assert self._run is not None
        began_again = self._losses.began_again
        if (rewound := self._losses.recovered()) is not None:
            self._happened.put(rewound)
            if began_again:
                self._run.mark()

    def recorded(self) -> None:
        self._losses.epoch_ended()

    def saved(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for server, why in leaving.items():
            self._lose(server, self._losses.life(server), why, elsewhere=True)

    def life(self, server: Address) -> int:
        return self._losses.life(server)

    # What comes

    def _hear(self, sender: Address, letter: Letter) -> None:
        match letter.event:
            case StateTold() as state:
                with self._lock:
                    self._standstill.take(state)
            case LogLine() as line:
                self._logs.write(line.sender, line.text)
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

    def _note_loss(self, loss: Loss) -> None:
        with self._lock:
            if self._is_over or loss.life != self._losses.life(loss.server):
                return
        if loss.final:
            self._happened.put(
                BadInput(loss.why) if loss.given else SiafuError(f"{loss.server} failed: {loss.why}")
            )
        else:
            self._lose(loss.server, loss.life, loss.why, elsewhere=False)

    def _lose(self, server: Address, life: int, why: str, *, elsewhere: bool) -> None:
        """A server is lost: go back to the last checkpoint, and replace it."""
        with self._lock:
            if self._is_over or not self._losses.lose(server, life, why, elsewhere=elsewhere):
                return
            self._post.part(server)
            self._logs.write(server, f"lost: {why}")
            if self._losses.too_many(server):
                self._happened.put(self._hopeless(server, why))
                return
            self._leaving.pop(server, None)
            assert self._run is not None
            self._run.forget_reports()
            self._run.deliver(ServerGone(server, Life(life)))

    def _hopeless(self, server: Address, why: str) -> SiafuError:
        return SiafuError(
            f"{server} was lost {MOST_LOSSES + 1} times without an epoch in between, last: {why}; "
            "see its log in the run's directory, and go on with --resume"
        )

    def _expect_to_lose(self, server: Address, why: str) -> None:
        """A server will be taken away soon: save a checkpoint, then replace it, so that nothing is lost."""
        with self._lock:
            if self._is_over or self._losses.is_gone(server):
                return
            self._leaving[server] = why
            self._logs.write(server, why)
            assert self._run is not None
            self._run.deliver(CheckpointAsked())

    def _replace(self, server: Address) -> None:
        """Start a replacement; the rest of the run waits for it. In a thread of its own."""
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
        """Make the replacement and the others known to each other; the others first, so that none refuses it."""
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
        """Tell all others. A server that is being replaced gets the letter when it begins."""
        self._post.meet([member])
        replaced = Letter(Replaced(member))
        for address in self.servers:
            if address != member.address:
                self._post.send(address, replaced)

    def _members(self) -> list[Member]:
        with self._lock:
            return [self._post.member, *(each.member for each in self.servers.values())]

    @property
    def _is_over(self) -> bool:
        return self._over or (self._run is not None and self._run.over)

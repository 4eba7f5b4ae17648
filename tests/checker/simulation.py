"""Simulation: a whole run of the machines in virtual time, under a checker."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from siafu.base.activity import Activity
from siafu.pipeline.ahead import Ahead
from siafu.pipeline.events import (
    CheckpointAsked,
    CopyGone,
    CopyMade,
    Event,
    HandOverAsked,
    Proceed,
    ServerGone,
    StopAsked,
)
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import FIRST_LIFE, RUN, Address, Incarnation, Life, ServerId, Version
from siafu.pipeline.instructions import (
    Accumulate,
    Adopt,
    CloseEpochs,
    FreeWeights,
    HoldCheckpoint,
    Instruction,
    KeepBest,
    KeepResult,
    RecordEpoch,
    Rewind,
    RunTask,
    SaveCheckpoint,
    Send,
    Stop,
)
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.task import Task
from siafu.pipeline.weight_server import WeightServer
from siafu.runtime.counters.server_activity import ServerActivity
from siafu.runtime.happenings import EpochRecord, Happening, Snapshot
from siafu.runtime.happenings import Outcome as Ended
from siafu.runtime.hosts.copy_host import CopyHost
from siafu.runtime.hosts.graph_host import GraphHost
from siafu.runtime.hosts.host import Host
from siafu.runtime.hosts.run_host import NoRecovery, RunHost
from siafu.runtime.hosts.weight_host import WeightHost
from siafu.runtime.letter import Letter
from siafu.runtime.story import Story, stuck
from siafu.virtual.agenda import Agenda
from siafu.weights.store import WeightStore
from tests.checker.ahead_checks import RunningAhead, check_adopted, check_copy
from tests.checker.checker import Checker, GivenUp
from tests.checker.network import Network
from tests.checker.ports import PART, LossyPost, SymbolExecutor, SymbolStore
from tests.checker.scenario import Scenario
from tests.checker.symbols import Part, Shelf, Tables
from tests.checker.truth import Violation, require

M = TypeVar("M", GraphServer, GraphCopy, WeightServer, RunMachine)

_TOLD = 20
_MANY = 300_000
"""More steps than any simulated run needs: one that takes more goes in circles."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines to run: the pipeline's own, or faulty ones that the checker must catch."""

    graph: type[GraphServer] = GraphServer
    copy: type[GraphCopy] = GraphCopy
    weight: type[WeightServer] = WeightServer
    run: type[RunMachine] = RunMachine


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to.

    makespan:  seconds of virtual time until it ended
    busy:      the share of that time that the cores were busy
    restarts:  how often it began again after a server was lost
    losses:    how many servers were lost
    handed:    how many were handed over
    lost:      how many letters were lost with their sender
    again:     how many tasks were run again
    tasks:     how many were run
    adopted:   how many need not be run again, since an eager copy had done them
    ahead:     how many eager copies took their server's place
    messages:  how many were sent
    staleness: how often an interval entered an epoch with this lead over the slowest
    """

    stop: Stop
    makespan: float
    busy: float
    restarts: int
    losses: int
    handed: int
    lost: int
    again: int
    tasks: int
    adopted: int
    ahead: int
    messages: int
    staleness: Counter[int]


def simulate(
    scenario: Scenario,
    machines: Machines = Machines(),
    *,
    validated: bool = True,
) -> Outcome:
    """Run a scenario to its end. A `Violation` names its seed, which replays it exactly.

    validated: machines look at their own state after every event
    """
    try:
        return _Simulation(scenario, machines, validated).run()
    except Violation as error:
        raise Violation(f"seed {scenario.seed}: {error}") from error


class _Simulation(NoRecovery):
    """A run of the real hosts; it is also the recovery that replaces those that die."""

    def __init__(self, scenario: Scenario, machines: Machines, validated: bool) -> None:
        setup = scenario.setup
        self._validated = validated
        self._story = Story(_TOLD)
        self._scenario, self._kinds = scenario, machines
        self._agenda = Agenda()
        self._source = random.Random(scenario.seed)
        self._shelves = [Shelf() for _ in range(setup.weight_servers)]
        self._checker = Checker(setup, scenario.options, scenario.score, scenario.start, self._shelves)
        self._network = Network(
            self._agenda, scenario.durations, scenario.faults, self._source, self._deliver, self._is_alive
        )
        self._checked: dict[type, Callable[[Address, Any], None]] = {
            Send: self._sent,
            RunTask: self._issued,
            Accumulate: self._adding,
            FreeWeights: self._freed,
            KeepBest: self._best,
            RecordEpoch: self._recorded,
            Rewind: self._rewound,
            HoldCheckpoint: self._holding_back,
            SaveCheckpoint: self._saving,
            KeepResult: self._kept,
            CloseEpochs: self._close_epochs,
            Adopt: self._begins_with,
        }
        self._closed, self._seen_at = int(scenario.start.epoch), 0.0
        self._busy = 0.0
        self._staleness: Counter[int] = Counter()
        self._stop: Stop | None = None
        self._hosts: dict[Address, Host] = {}
        self._lives: dict[Address, Life] = {}
        self._given_up: set[Address] = set()
        self.losses = self.handed_over = self._again = self._adopted = self._promoted = 0
        self._copies: dict[Address, SymbolExecutor] = {}
        self._done: set[tuple[Incarnation, Task]] = set()
        self._machines: dict[Address, GraphServer | GraphCopy | WeightServer | RunMachine] = {}
        self._executors: dict[ServerId, SymbolExecutor] = {}
        self._stores: dict[ServerId, SymbolStore] = {}
        self._checker.weight_server = self._weight_server
        for address in (*setup.graph_addresses, *setup.weight_addresses):
            self._stand_up(address)
        machine = self._looked_after(
            machines.run(
                setup,
                scenario.options,
                scenario.score,
                start=scenario.start,
                rates=(lambda epoch: (float(epoch),)) if setup.paced else None,
            )
        )
        version = scenario.start.version
        parts = {f"{PART}{home}": Part(Incarnation(0), home, version, ()) for home in setup.parts}
        start = Snapshot(scenario.start.epoch, version, cast(Any, parts), {}, {})
        self._run = RunHost(
            machine,
            LossyPost(self._network, RUN),
            (*setup.graph_addresses, *setup.weight_addresses),
            start,
            self._happened,
            threads=1,
            recovery=self,
            watch=self._watch,
        )
        self._hosts[RUN], self._machines[RUN] = self._run, machine

    def run(self) -> Outcome:
        scenario = self._scenario
        self._guarded(self._run.begin)
        for when, address in scenario.faults.deaths:
            self._agenda.after(when, self._die, address)
        for when, server in scenario.faults.copies:
            self._agenda.after(when, self._make_copy, Address("copy", server))
        for when, address in scenario.faults.hand_overs:
            self._agenda.after(when, self._ask, HandOverAsked(address))
        for when in scenario.checkpoints:
            self._agenda.after(when, self._ask, CheckpointAsked())
        if scenario.stop is not None:
            self._agenda.after(scenario.stop, self._ask, StopAsked())
        stop = self._run_to_end()
        makespan = self._agenda.now
        if stop.reason != "diverged":
            while self._guarded(self._agenda.step):
                pass
            self._checker.ended(stop)
        for address in [each for each in self._hosts if each.role == "graph"]:
            self._take_counts(address)
        cores = scenario.cores * scenario.setup.layout.num_servers
        busy = self._busy / (makespan * cores) if makespan else 0.0
        restarts = int(self._run.incarnation)
        lost = self._network.lost_with_sender
        again, tasks = self._again, len(self._done)
        return Outcome(
            stop,
            makespan,
            busy,
            restarts,
            self.losses,
            self.handed_over,
            lost,
            again,
            tasks,
            self._adopted,
            self._promoted,
            self._network.sent,
            self._staleness,
        )

    def _run_to_end(self) -> Stop:
        for _ in range(_MANY):
            if self._stop is not None:
                return self._stop
            if not self._guarded(self._agenda.step):
                raise Violation(self._stuck("nothing is under way and the run has not ended"))
        raise Violation(self._stuck(f"no end after {_MANY} steps"))

    def _stuck(self, why: str) -> str:
        return stuck(why, self._story, self._waiting(), last=_TOLD, most=_MANY)

    def _guarded(self, call: Any) -> Any:
        """A machine that makes its host fail has a fault."""
        try:
            return call()
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"a host failed: {error!r}") from error

    def _waiting(self) -> list[str]:
        return [line for address in self._hosts for line in self._machines[address].waiting()]

    def _ask(self, event: Event) -> None:
        self._run.deliver(event)

    # Servers come and go

    def _make_copy(self, copy: Address) -> None:
        """An eager copy begins, unless there is one."""
        setup = self._scenario.setup
        if copy in self._hosts or self._stop is not None or setup.ahead is None:
            return
        life = self._lives[copy] = Life(self._lives.get(copy, 0) + 1)
        machine = self._looked_after(self._kinds.copy(setup, copy.index, life))
        executor = SymbolExecutor(
            self._scenario, self._agenda, self._source, machine, RunningAhead(self._checker)
        )
        self._copies[copy], self._machines[copy] = executor, machine
        self._hosts[copy] = CopyHost(machine, LossyPost(self._network, copy), executor, watch=self._watch)
        self._run.deliver(CopyMade(copy, life))

    def _end_copy(self, copy: Address) -> None:
        self._copies.pop(copy).dead = True
        del self._hosts[copy]

    def _lose_copy(self, copy: Address) -> None:
        """An eager copy dies; perhaps nobody ever notices."""
        faults = self._scenario.faults
        self._end_copy(copy)
        if self._source.random() >= faults.unnoticed:
            gone = CopyGone(copy, self._lives[copy])
            self._agenda.after(faults.detection, self._ask, gone)
            self._agenda.after(faults.detection + faults.replacement, self._make_copy, copy)

    def _promote(self, copy: Address) -> tuple[Ahead | None, Tables | None]:
        """An eager copy takes its server's place: what it has."""
        if copy not in self._hosts:
            return None, None
        machine, tables = self._machines[copy], self._copies[copy].tables
        assert isinstance(machine, GraphCopy)
        self._promoted += 1
        self._end_copy(copy)
        self._ask(CopyGone(copy, self._lives[copy]))
        self._agenda.after(self._scenario.faults.replacement, self._make_copy, copy)
        return machine.ahead, tables

    def _stand_up(self, address: Address, life: Life = FIRST_LIFE) -> None:
        setup, post = self._scenario.setup, LossyPost(self._network, address)
        self._lives[address] = life
        self._given_up.discard(address)
        if address.role == "graph" and address.index in self._executors:
            self._executors[address.index].dead = True
        if address.role == "weight":
            home = self._looked_after(self._kinds.weight(setup, address.index, life))
            store = SymbolStore(self._scenario, home, self._shelves[address.index], self._checker)
            self._stores[address.index], self._machines[address] = store, home
            self._hosts[address] = WeightHost(
                home, post, cast(WeightStore, store), self._updates(address), watch=self._watch
            )
            return
        ahead, tables = self._promote(Address("copy", address.index))
        machine = self._looked_after(self._kinds.graph(setup, address.index, life, ahead))
        executor = SymbolExecutor(self._scenario, self._agenda, self._source, machine, self._checker, tables)
        self._executors[address.index], self._machines[address] = executor, machine
        self._hosts[address] = GraphHost(
            machine, post, executor, ServerActivity(Activity(), None), watch=self._watch
        )

    def _looked_after(self, machine: M) -> M:
        """The machine, which validates its state after every event."""
        if not self._validated:
            return machine
        handle = machine.handle

        def handled(event: Event) -> list[Instruction]:
            out = handle(event)
            try:
                machine.validate()
            except AssertionError as error:
                raise Violation(f"{type(machine).__name__} after {event}: {error}") from error
            return out

        setattr(machine, "handle", handled)  # noqa: B010 (a method, of this one alone)
        return machine

    def _updates(self, at: Address) -> Any:
        def update(version: Version, make: Any, then: Any) -> None:
            host, incarnation = self._hosts[at], self._hosts[at].incarnation

            def finish() -> None:
                if self._hosts.get(at) is not host:
                    return
                if host.incarnation == incarnation:
                    make()
                then()

            self._agenda.after(self._scenario.durations.update(at), finish)

        return update

    def _die(self, address: Address) -> None:
        if self._stop is not None or address not in self._hosts or address in self._given_up:
            return
        self.losses += 1
        if address.role == "copy":
            self._lose_copy(address)
            return
        if self._source.random() < self._scenario.faults.undead:
            self._give_up(address)
            return
        if address.role == "graph":
            self._take_counts(address)
            self._executors[address.index].dead = True
        else:
            self._shelves[address.index].clear()
            self._shelves[address.index].lost = True
        del self._hosts[address]
        self._agenda.after(self._scenario.faults.detection, self._miss, address)

    def _give_up(self, address: Address) -> None:
        """A server is taken for lost, and goes on until another stands in its place."""
        self._let_go(address)
        self._miss(address)

    def _let_go(self, address: Address) -> None:
        self._given_up.add(address)
        if address.role == "graph":
            self._executors[address.index].checker = GivenUp(self._checker)
        else:
            self._stores[address.index].checker = GivenUp(self._checker)
            self._shelves[address.index].lost = True

    def _is_alive(self, letter: Letter) -> bool:
        """Whether the life that sent a letter is the one that is there now."""
        stamp = letter.stamp
        if stamp is None or stamp.sender == RUN:
            return True
        return stamp.sender in self._hosts and stamp.life == self._lives[stamp.sender]

    def _miss(self, address: Address) -> None:
        if self._stop is None:
            self._run.forget_reports()
            self._run.deliver(ServerGone(address, self._lives[address]))

    def replace(self, server: Address) -> None:
        if server in self._hosts and server not in self._given_up:
            self.handed_over += 1
            self._let_go(server)
        life = Life(self._lives[server] + 1)
        self._agenda.after(self._scenario.faults.replacement, self._stand_up, server, life)

    def _take_counts(self, address: Address) -> None:
        machine = self._machines[address]
        assert isinstance(machine, GraphServer)
        self._staleness.update(machine.counts.staleness)
        self._adopted += machine.counts.adopted
        self._busy += self._executors[address.index].workers.busy

    def _weight_server(self, server: ServerId) -> Incarnation | None:
        """Of the weight server that is there; None: it is lost."""
        host = self._hosts.get(Address("weight", server))
        return None if host is None else host.incarnation

    # What hosts do

    def _deliver(self, sender: Address, to: Address, letter: Letter) -> bool:
        host = self._hosts.get(to)
        if host is None:
            return to.role == "copy" or self._stop is not None
        life, stamp = FIRST_LIFE if to == RUN else self._lives[to], letter.stamp
        assert stamp is not None
        if stamp.to_life > life:
            return self._stop is not None  # for one that is not there yet
        void, before = self._checker.is_void(to, life, stamp), host.events
        host.hear(sender, letter)
        unchanged = not void or host.events == before
        require(unchanged, "nothing from or for an earlier life changes a machine", to, letter)
        if to.role == "weight":
            self._checker.held(to.index)
        return True

    def _happened(self, what: Happening) -> None:
        if isinstance(what, EpochRecord) and self._scenario.options.closes:
            self._close(what)
        elif isinstance(what, Snapshot):
            if self._scenario.setup.exact:
                self._checker.restored(what.version, list(what.weights.values()))  # type: ignore[arg-type]
            self._checker.saved()
        elif isinstance(what, Ended):
            self._checker.stopped(what.stop)
            self._stop = what.stop

    def _close(self, record: EpochRecord) -> None:
        """The owner sees a record a while after it was made, and may stop the run then."""
        stop = record.epoch == self._scenario.stopped_after
        self._seen_at = max(self._seen_at, self._agenda.now + self._source.random() * 5)
        self._agenda.after(self._seen_at - self._agenda.now, self._seen, record, stop)

    def _seen(self, record: EpochRecord, stop: bool) -> None:
        if self._scenario.setup.closes or record.incarnation == self._run.incarnation:
            self._closed = record.epoch + 1
        self._run.close_epoch(record, stop)

    def _check_closed(self, until: int) -> None:
        """In an exact run nobody enters an epoch before the owner has seen the one before."""
        if self._scenario.options.closes and self._scenario.setup.exact:
            require(until <= self._closed + 1, "an epoch begins when the one before is closed", until)

    def _watch(self, at: Address, what: Event | Instruction) -> None:
        self._story.note(at, what)
        if at.role == "copy":
            if isinstance(what, Instruction):
                check_copy(self._machines[at], what)  # type: ignore[arg-type]
            return
        if at in self._given_up and not isinstance(what, Accumulate):
            return
        if at == RUN and isinstance(what, Event):
            self._checker.heard(what)
        checked = self._checked.get(type(what))
        if checked is not None:
            checked(at, what)

    def _sent(self, at: Address, send: Send) -> None:
        if isinstance(send.message, Proceed):
            self._check_closed(send.message.until)
        self._checker.sent(self._machines[at].fences.incarnation, at, send.to, send.message)

    def _begins_with(self, at: Address, adopt: Adopt) -> None:
        machine = self._machines[at]
        assert isinstance(machine, GraphServer)
        tables, done = self._executors[at.index].tables, dict(machine._done_ahead)
        check_adopted(self._scenario.setup, self._checker.truth, at, done, tables)

    def _issued(self, at: Address, run: RunTask) -> None:
        self._checker.issued(self._machines[at].fences.incarnation, run)

    def _close_epochs(self, at: Address, close: CloseEpochs) -> None:
        self._checker.truth.close(close)

    def _kept(self, at: Address, keep: KeepResult) -> None:
        key = self._machines[at].fences.incarnation, keep.task
        self._again += key in self._done
        self._done.add(key)

    def _adding(self, at: Address, added: Accumulate) -> None:
        self._stores[at.index].adding = added

    def _freed(self, at: Address, free: FreeWeights) -> None:
        self._checker.freed(self._machines[at].fences.incarnation, at.index, free.version)

    def _best(self, at: Address, best: KeepBest) -> None:
        incarnation = self._machines[at].fences.incarnation
        self._checker.best(incarnation, None if at == RUN else at.index, best)

    def _recorded(self, at: Address, record: RecordEpoch) -> None:
        self._checker.recorded(record)

    def _rewound(self, at: Address, rewind: Rewind) -> None:
        if rewind.to_checkpoint:
            self._closed = rewind.epochs
        self._checker.rewound(rewind.epochs)

    def _holding_back(self, at: Address, hold: HoldCheckpoint) -> None:
        self._checker.held_back(hold)

    def _saving(self, at: Address, save: SaveCheckpoint) -> None:
        self._checker.saving(save)

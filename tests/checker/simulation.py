"""Simulation: a whole run of the machines in virtual time, under a checker."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from siafu.pipeline.events import (
    CheckpointAsked,
    CheckpointSaved,
    Event,
    GradientArrived,
    Measures,
    RowsArrived,
    ServerGone,
    StopAsked,
    TaskDone,
    UpdateDone,
    WeightsMade,
)
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import RUN, Address, Epoch, Incarnation, ServerId, Version
from siafu.pipeline.instructions import (
    Abandon,
    Accumulate,
    FreeWeights,
    Instruction,
    KeepBest,
    KeepResult,
    KeepRows,
    KeepWeights,
    RecordEpoch,
    Replace,
    Restore,
    Rewind,
    RunTask,
    SaveCheckpoint,
    Send,
    Stop,
    Update,
)
from siafu.pipeline.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from siafu.virtual.agenda import Agenda
from tests.checker.checker import Checker
from tests.checker.network import Network
from tests.checker.scenario import Scenario
from tests.checker.symbols import Gradient, Part, Payload, Result, Rows, RowsKey, Shelf, Tables
from tests.checker.truth import Violation
from tests.checker.workers import Workers

_MANY = 300_000
"""More steps than any simulated run needs: one that takes more goes in circles."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines to run: the pipeline's own, or faulty ones that the checker must catch."""

    graph: type[GraphServer] = GraphServer
    weight: type[WeightServer] = WeightServer
    run: type[RunMachine] = RunMachine


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to.

    makespan:  seconds of virtual time until it ended
    busy:      the share of that time that the cores were busy
    restarts:  how often it began again after a server was lost
    messages:  how many were sent
    staleness: how often an interval entered an epoch with this lead over the slowest
    """

    stop: Stop
    makespan: float
    busy: float
    restarts: int
    messages: int
    staleness: Counter[int]


def simulate(scenario: Scenario, machines: Machines = Machines()) -> Outcome:  # noqa: B008
    """Run a scenario to its end. A `Violation` names its seed, which replays it exactly."""
    try:
        return _Simulation(scenario, machines).run()
    except Violation as error:
        raise Violation(f"seed {scenario.seed}: {error}") from error


class _Simulation:
    def __init__(self, scenario: Scenario, machines: Machines) -> None:
        setup = scenario.setup
        self._scenario = scenario
        self._kinds = machines
        self._agenda = Agenda()
        self._source = random.Random(scenario.seed)
        self._run = machines.run(setup, scenario.options, scenario.score, start=scenario.start)
        self._graph: dict[ServerId, GraphServer] = {}
        self._weight: dict[ServerId, WeightServer] = {}
        self._tables: dict[ServerId, Tables] = {}
        self._workers: dict[ServerId, Workers] = {}
        self._shelves = [Shelf() for _ in range(setup.weight_servers)]
        self._busy = 0.0
        self._staleness: Counter[int] = Counter()
        self._stop: Stop | None = None
        self._checker = Checker(setup, scenario.options, scenario.score, scenario.start, self._shelves)
        self._network = Network(
            self._agenda, scenario.durations, scenario.faults, self._source, self._deliver
        )
        self._measured = {
            "train": next(each.id for each in setup.training.stages if each.direction == "backward"),
            "evaluate": setup.evaluation.stages[-1].id,
        }
        self._obey: dict[type[Instruction], Callable[[Address, Any, Payload], None]] = {
            Send: self._send,
            Abandon: lambda at, _, __: self._workers[at.index].begin(self._graph[at.index].incarnation),
            RunTask: self._run_task,
            KeepResult: self._keep_result,
            KeepRows: self._keep_rows,
            Restore: self._restore,
            Accumulate: self._accumulate,
            Update: self._update,
            KeepWeights: self._keep_weights,
            FreeWeights: self._free_weights,
            KeepBest: self._keep_best,
            RecordEpoch: lambda _, record, __: self._checker.recorded(record),
            Rewind: lambda _, rewind, __: self._checker.rewound(rewind.epochs),
            SaveCheckpoint: self._save_checkpoint,
            Replace: self._replace,
            Stop: self._stop_run,
        }
        for server in range(setup.layout.num_servers):
            self._stand_up(Address("graph", ServerId(server)))
        for server in range(setup.weight_servers):
            self._stand_up(Address("weight", ServerId(server)))

    def run(self) -> Outcome:
        scenario = self._scenario
        for instruction in self._run.begin():
            self._obey[type(instruction)](RUN, instruction, None)
        for when, address in scenario.faults.deaths:
            self._agenda.after(when, self._die, address)
        for when in scenario.checkpoints:
            self._agenda.after(when, self._deliver, RUN, CheckpointAsked(Incarnation(0)), None)
        if scenario.stop is not None:
            self._agenda.after(scenario.stop, self._deliver, RUN, StopAsked(Incarnation(0)), None)
        stop = self._run_to_end()
        makespan = self._agenda.now
        if stop.reason != "diverged":
            while self._agenda.step():
                pass
            self._checker.ended(stop)
        for server in list(self._graph):
            self._take_counts(server)
        cores = scenario.cores * scenario.setup.layout.num_servers
        busy = self._busy / (makespan * cores) if makespan else 0.0
        return Outcome(stop, makespan, busy, int(self._run.incarnation), self._network.sent, self._staleness)

    def _run_to_end(self) -> Stop:
        for _ in range(_MANY):
            if self._stop is not None:
                return self._stop
            if not self._agenda.step():
                raise Violation(
                    "nothing is under way and the run has not ended\n" + "\n".join(self._waiting())
                )
        raise Violation(f"no end after {_MANY} steps\n" + "\n".join(self._waiting()))

    def _waiting(self) -> list[str]:
        machines: list[GraphServer | WeightServer | RunMachine]
        machines = [self._run, *self._graph.values(), *self._weight.values()]
        return [line for machine in machines for line in machine.waiting()]

    # Servers come and go

    def _stand_up(self, address: Address) -> None:
        setup, server = self._scenario.setup, address.index
        if address.role == "weight":
            self._weight[server] = self._kinds.weight(setup, server)
            return
        self._graph[server] = self._kinds.graph(setup, server)
        self._tables[server] = Tables()
        self._workers[server] = Workers(
            self._agenda,
            self._scenario.durations,
            self._scenario.faults,
            self._source,
            address,
            self._tables[server],
            self._scenario.cores,
            self._scenario.lambdas,
            self._task_began,
            self._task_finished,
        )

    def _die(self, address: Address) -> None:
        alive = self._graph if address.role == "graph" else self._weight
        if self._stop is not None or address.index not in alive:
            return
        if address.role == "graph":
            self._take_counts(address.index)
        else:
            self._shelves[address.index].clear()
            self._shelves[address.index].lost = True
        del alive[address.index]
        self._agenda.after(self._scenario.faults.detection, self._miss, address)

    def _miss(self, address: Address) -> None:
        if self._stop is None:
            self._deliver(RUN, ServerGone(self._run.incarnation, address), None)

    def _replace(self, _: Address, replace: Replace, __: Payload) -> None:
        self._agenda.after(self._scenario.faults.replacement, self._stand_up, replace.server)

    def _take_counts(self, server: ServerId) -> None:
        self._staleness.update(self._graph[server].counts.staleness)
        self._busy += self._workers[server].busy

    # Messages

    def _deliver(self, to: Address, event: Event, payload: Payload) -> bool:
        machine = self._machine(to)
        if machine is None:
            return self._stop is not None
        if isinstance(payload, Gradient) and event.incarnation == machine.incarnation:
            key = payload.epoch, payload.phase, payload.interval
            self._shelves[to.index].arrived[key] = payload
        for instruction in self._handle(machine, event):
            self._obey[type(instruction)](to, instruction, payload)
        if to.role == "weight":
            self._checker.held(to.index)
        return True

    def _handle(self, machine: GraphServer | WeightServer | RunMachine, event: Event) -> list[Instruction]:
        try:
            return machine.handle(event)
        except Exception as error:
            raise Violation(f"{type(machine).__name__} failed on {event}: {error!r}") from error

    def _machine(self, at: Address) -> GraphServer | WeightServer | RunMachine | None:
        if at.role == "graph":
            return self._graph.get(at.index)
        return self._weight.get(at.index) if at.role == "weight" else self._run

    def _send(self, sender: Address, send: Send, came: Payload) -> None:
        message = send.message
        self._checker.sent(sender, send.to, message)
        payload: Payload = None
        if isinstance(message, RowsArrived):
            payload = self._tables[sender.index].rows[message.lane, message.stage, message.interval]
        elif isinstance(message, GradientArrived) and isinstance(came, Result):
            payload = Gradient(
                message.incarnation, message.epoch, message.phase, message.interval, came.rows.version
            )
        elif isinstance(message, WeightsMade):
            payload = self._shelves[sender.index].parts[message.version][message.home]
        self._network.send(sender, send.to, message, payload)

    # Graph servers

    def _run_task(self, at: Address, run: RunTask, _: Payload) -> None:
        self._checker.issued(self._graph[at.index].incarnation, run)
        self._workers[at.index].add(run)

    def _task_began(self, incarnation: Incarnation, run: RunTask) -> list[RowsKey]:
        weights = self._weight.get(run.weights)
        if run.task.stage.kind == "tensor" and weights is not None and weights.incarnation == incarnation:
            self._checker.weights_read(incarnation, run)
        return self._checker.reads(run.task)

    def _task_finished(self, incarnation: Incarnation, run: RunTask, result: Result) -> None:
        owner = Address("graph", self._scenario.setup.layout.owner[run.task.interval])
        done = TaskDone(incarnation, run.task, self._measures(run))
        self._deliver(owner, done, result)

    def _measures(self, run: RunTask) -> Measures:
        if run.task.stage.id != self._measured[run.task.lane]:
            return ()
        if run.task.lane == "train" and run.task.epoch == self._scenario.diverges_in:
            return (math.nan, 0.0)
        return (1.0, float(run.version))

    def _keep_result(self, at: Address, keep: KeepResult, came: Payload) -> None:
        result = came if isinstance(came, Result) and came.task == keep.task else None
        self._checker.kept(self._graph[at.index].incarnation, result)
        if result is not None:
            task = keep.task
            self._store(at.index, (task.lane, task.stage.id, task.interval), result.rows)

    def _keep_rows(self, at: Address, keep: KeepRows, came: Payload) -> None:
        if isinstance(came, Rows):
            self._store(at.index, (keep.lane, keep.stage, keep.interval), came)

    def _store(self, server: ServerId, key: RowsKey, rows: Rows) -> None:
        table = self._tables[server].rows
        self._checker.stored(key, rows, table.get(key))
        table[key] = rows

    # Weight servers

    def _restore(self, at: Address, restore: Restore, _: Payload) -> None:
        shelf = self._shelves[at.index]
        shelf.clear()
        shelf.lost = False
        incarnation = self._weight[at.index].incarnation
        shelf.parts[restore.version] = {
            home: Part(incarnation, home, restore.version, ()) for home in self._scenario.setup.parts
        }

    def _accumulate(self, at: Address, added: Accumulate, _: Payload) -> None:
        shelf = self._shelves[at.index]
        gradient = shelf.arrived.pop((added.epoch, added.phase, added.interval), None)
        self._checker.accumulated(self._weight[at.index].incarnation, added, gradient)
        if gradient is not None:
            shelf.sums.setdefault((added.phase, added.version), []).append(gradient)

    def _update(self, at: Address, update: Update, _: Payload) -> None:
        incarnation = self._weight[at.index].incarnation
        self._agenda.after(
            self._scenario.durations.update(at), self._updated, at, incarnation, update.version
        )

    def _updated(self, at: Address, incarnation: Incarnation, version: Version) -> None:
        machine = self._weight.get(at.index)
        if machine is not None and machine.incarnation == incarnation:
            shelf = self._shelves[at.index]
            phases = [phase for phase, home in self._scenario.setup.homes.items() if home == at.index]
            gradients = [each for phase in phases for each in shelf.sums.pop((phase, version), [])]
            part = Part(incarnation, at.index, version, tuple(gradients))
            self._checker.made(incarnation, part)
            shelf.parts.setdefault(version, {})[at.index] = part
        self._deliver(at, UpdateDone(incarnation, version), None)

    def _keep_weights(self, at: Address, keep: KeepWeights, came: Payload) -> None:
        if isinstance(came, Part):
            self._shelves[at.index].parts.setdefault(keep.version, {})[keep.home] = came

    def _free_weights(self, at: Address, free: FreeWeights, _: Payload) -> None:
        self._checker.freed(self._weight[at.index].incarnation, at.index, free.version)
        del self._shelves[at.index].parts[free.version]

    def _keep_best(self, at: Address, best: KeepBest, _: Payload) -> None:
        self._checker.best(self._weight[at.index].incarnation, at.index, best)

    # The run

    def _save_checkpoint(self, _: Address, save: SaveCheckpoint, __: Payload) -> None:
        self._checker.saving(save)
        self._agenda.after(
            self._scenario.durations.checkpoint(), self._saved, self._run.incarnation, save.epochs
        )

    def _saved(self, incarnation: Incarnation, epochs: Epoch) -> None:
        if incarnation == self._run.incarnation:
            self._checker.saved()
        self._deliver(RUN, CheckpointSaved(incarnation, epochs), None)

    def _stop_run(self, _: Address, stop: Stop, __: Payload) -> None:
        if stop.version is None:
            self._end(stop)
        else:
            self._agenda.after(
                self._scenario.durations.checkpoint(), self._fetch, self._run.incarnation, stop
            )

    def _fetch(self, incarnation: Incarnation, stop: Stop) -> None:
        """The last version is fetched from all weight servers, unless one is lost before: then the run is not over."""
        there = len(self._weight) == self._scenario.setup.weight_servers
        if there and incarnation == self._run.incarnation and self._run.ended:
            self._end(stop)

    def _end(self, stop: Stop) -> None:
        self._checker.stopped(stop)
        self._stop = stop

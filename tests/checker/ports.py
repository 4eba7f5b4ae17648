"""The ports of hosts in a checked run: an executor and a store that work on symbols, and a post that loses letters."""

import math
import random
from collections.abc import Callable
from typing import Any

from siafu.pipeline.events import Measures, RowsArrived, WeightsAsked
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import Address, ServerId, Version
from siafu.pipeline.instructions import Accumulate, BeginTask, CompareRows, KeepRows, RunTask
from siafu.pipeline.task import Task
from siafu.pipeline.weight_server import WeightServer
from siafu.runtime.executor import Weights
from siafu.runtime.letter import Letter
from siafu.server.worker import TaskResult as Given
from siafu.virtual.agenda import Agenda
from tests.checker.checker import Checker
from tests.checker.network import Network
from tests.checker.scenario import Scenario
from tests.checker.symbols import Gradient, Part, Result, Rows, RowsKey, Shelf, Tables
from tests.checker.truth import require
from tests.checker.workers import Workers

ROWS, GRADIENT, PART = "rows", "gradient", "part/"


class LossyPost:
    """One host's way into the network."""

    def __init__(self, network: Network, me: Address) -> None:
        self._network, self._me = network, me

    def send(self, to: Address, letter: Letter) -> None:
        self._network.send(self._me, to, letter)

    def flush(self) -> None: ...


class SymbolExecutor:
    """A graph server's tasks on symbols. See `siafu.runtime.executor`.

    dead:    the server died: nobody hears of its tasks any more
    checker: sees what the tasks do
    """

    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        source: random.Random,
        machine: GraphServer | GraphCopy,
        checker: Checker,
        tables: Tables | None = None,
    ) -> None:
        """tables: of the eager copy that takes a server's place"""
        self._machine, self.checker, self._scenario = machine, checker, scenario
        self._agenda, self._packing = agenda, random.Random(scenario.seed + 3)
        self.tables = self._tables = tables or Tables()
        self.dead = False
        self._done: dict[int, Callable[[Given], None]] = {}
        self._just_came: Result | None = None
        self._measured = {
            "train": next(each.id for each in scenario.setup.training.stages if each.direction == "backward"),
            "evaluate": scenario.setup.evaluation.stages[-1].id,
        }
        self.workers = Workers(
            agenda,
            scenario.durations,
            scenario.faults,
            source,
            machine.address,
            self._tables,
            scenario.cores,
            scenario.lambdas,
            self._began,
            self._finished,
            lambda what: self.checker.early_reads(what),
        )

    def run(
        self, what: RunTask, weights: Weights, began: Callable[[], None], done: Callable[[Given], None]
    ) -> None:
        self._done[id(what)] = done
        self.workers.add(what)

    def begin(self, what: BeginTask) -> None:
        self.checker.may_begin(self._machine.fences.incarnation, what)
        self.workers.begin_early(what)

    def _began(self, incarnation: int, run: RunTask) -> list[RowsKey]:
        self.checker.begins(incarnation, run)
        return self.checker.reads(run.task)

    def _finished(self, incarnation: Any, run: RunTask, result: Result) -> None:
        if self.dead:
            return
        task, version = run.task, result.rows.version
        gradients: dict[Any, Any] = {
            phase: {GRADIENT: Gradient(incarnation, task.epoch, phase, task.interval, version)}
            for phase in task.stage.gradients
        }
        self._just_came = result
        self._done[id(run)](Given(gradients, self._measures(run)))
        self._just_came = None

    def _measures(self, run: RunTask) -> Measures:
        if run.task.stage.id != self._measured[run.task.lane]:
            return ()
        if run.task.lane == "train" and run.task.epoch == self._scenario.diverges_in:
            return (math.nan, 0.0)
        return (1.0, float(run.version))

    def enter(self, asked: WeightsAsked, then: Callable[[], None]) -> None:
        then()

    def pack_rows(self, to: Address, message: RowsArrived, then: Callable[[Letter, int], None]) -> None:
        if self._scenario.setup.exact:
            # By a thread, when it is its turn.
            self._agenda.after(self._packing.random() * 0.5, self._pack, message, then)
        else:
            self._pack(message, then)

    def _pack(self, message: RowsArrived, then: Callable[[Letter, int], None]) -> None:
        if self.dead:
            return
        rows = self._tables.rows[message.lane, message.stage, message.interval]
        if self._scenario.setup.exact and rows.incarnation == self._machine.fences.incarnation:
            self.checker.packed(rows, message)
        then(Letter(message, {ROWS: rows}), 1)

    def keep_result(self, task: Task) -> None:
        came = self._just_came
        result = came if came is not None and came.task == task else None
        self.checker.kept(self._machine.fences.incarnation, result)
        if result is not None:
            self._store((task.lane, task.stage.id, task.interval), result.rows)

    def keep_rows(self, keep: KeepRows, came: Letter) -> None:
        if ROWS in came.tensors:
            self._store((keep.lane, keep.stage, keep.interval), came.tensors[ROWS])

    def compare_rows(self, what: CompareRows, came: Letter) -> tuple[int, int]:
        held = self._tables.rows[what.lane, what.stage, what.interval]
        differ = ROWS in came.tensors and held != came.tensors[ROWS]
        require(not differ, "rows that come twice are the same", held, came)
        return 1, 0

    def _store(self, key: RowsKey, rows: Rows) -> None:
        self.checker.stored(key, rows, self._tables.rows.get(key))
        self._tables.rows[key] = rows

    def halt(self) -> None: ...

    def abandon(self) -> None:
        self.workers.begin(self._machine.fences.incarnation)

    def adopt(self) -> None:
        self.workers.begin(self._machine.fences.incarnation)

    def resume(self) -> None: ...


class SymbolStore:
    """A weight server's shelf as `siafu.weights.store` has it.

    adding:  what the machine last said of a gradient
    checker: sees what is done with gradients
    """

    gradients_applied = 0

    def __init__(self, scenario: Scenario, machine: WeightServer, shelf: Shelf, checker: Checker) -> None:
        self.adding: Accumulate | None = None
        self._setup, self._machine, self._shelf, self.checker = scenario.setup, machine, shelf, checker
        self._start = scenario.start

    @property
    def versions(self) -> dict[Version, dict[ServerId, Part]]:
        return self._shelf.parts

    def weights(self, version: Version) -> dict[str, Any]:
        return {f"{PART}{home}": part for home, part in self._shelf.parts[version].items()}

    def part(self, version: Version) -> dict[str, Any]:
        home = self._machine.server
        return {f"{PART}{home}": self._shelf.parts[version][home]}

    def restore(self, version: Version, weights: Any, state: Any, held: Any) -> None:
        self._shelf.clear()
        self._shelf.lost = False
        incarnation = self._machine.fences.incarnation
        for each, found in {**held, version: weights}.items():
            self.checker.restored(each, list(found.values()))
            self._shelf.parts[each] = {home: Part(incarnation, home, each, ()) for home in self._setup.parts}

    def accumulate(self, version: Version, gradients: Any) -> None:
        assert self.adding is not None
        gradient = gradients[GRADIENT]
        self.checker.accumulated(self._machine.fences.incarnation, self.adding, gradient)
        self._shelf.sums.setdefault((self.adding.phase, version), []).append(gradient)

    def norms(self, version: Version) -> tuple[tuple[int, float], ...]:
        return ((int(self._machine.server), float(version)),)

    def update(
        self, version: Version, rates: tuple[float, ...], norms: tuple[tuple[int, float], ...]
    ) -> None:
        setup, start = self._setup, self._start
        epoch = start.epoch + version - start.version - 1
        wanted = (float(epoch),) if setup.paced else ()
        require(rates == wanted, "an update has the rates of its epoch", version, rates)
        homes = tuple((int(each), float(version)) for each in sorted(setup.parts)) if setup.clipped else ()
        require(norms == homes, "an update has the norms of all homes' gradients", version, norms)
        home, shelf = self._machine.server, self._shelf
        phases = [phase for phase, where in self._setup.homes.items() if where == home]
        gradients = [each for phase in phases for each in shelf.sums.pop((phase, version), [])]
        part = Part(self._machine.fences.incarnation, home, version, tuple(gradients))
        self.checker.made(self._machine.fences.incarnation, part)
        shelf.parts.setdefault(version, {})[home] = part

    def keep(self, version: Version, part: Any) -> None:
        for each in part.values():
            self._shelf.parts.setdefault(version, {})[each.home] = each

    def free(self, version: Version) -> None:
        del self._shelf.parts[version]

    def state(self) -> dict[str, Any]:
        return {}

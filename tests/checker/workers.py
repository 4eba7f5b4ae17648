"""Workers: the cores and Lambdas of one graph server, running its tasks on symbols."""

import random
from collections.abc import Callable

from siafu.pipeline.ids import Address, Incarnation
from siafu.pipeline.instructions import BeginTask, RunTask
from siafu.pipeline.task import Task
from siafu.virtual.agenda import Agenda
from tests.checker.durations import Durations
from tests.checker.faults import Faults
from tests.checker.pool import Pool
from tests.checker.symbols import Read, Result, Rows, RowsKey, Tables

Finished = Callable[[Incarnation, RunTask, Result], None]


class Workers:
    """Runs gathers on cores, and tensor tasks on Lambdas if there are any.

    began:    called when a task begins and reads its weights; the rows that it must read
    finished: called for every result, also one that comes a second time
    early:    the rows that a gather may begin with, in the order in which it reads them
    busy:     core seconds spent
    """

    def __init__(
        self,
        agenda: Agenda,
        durations: Durations,
        faults: Faults,
        source: random.Random,
        address: Address,
        tables: Tables,
        cores: int,
        lambdas: int,
        began: Callable[[Incarnation, RunTask], list[RowsKey]],
        finished: Finished,
        early: Callable[[BeginTask], list[RowsKey]],
    ) -> None:
        self._agenda = agenda
        self._durations = durations
        self._faults = faults
        self._draw = source.random
        self._address = address
        self._tables = tables
        self._began = began
        self._finished = finished
        self._early = early
        self._cores = Pool(cores, self._start_on_core)
        self._lambdas = Pool(lambdas, self._start_on_lambda) if lambdas else None
        self._incarnation = Incarnation(-1)
        self._unanswered: set[int] = set()
        self._tasks = 0
        self._begun: dict[Task, dict[RowsKey, Rows | None]] = {}
        self._taken: set[Task] = set()
        self.busy = 0.0
        self.invocations = 0

    def begin(self, incarnation: Incarnation) -> None:
        """Forget the tasks that wait; those under way will finish in vain."""
        self._incarnation = incarnation
        self._begun.clear()
        self._taken.clear()
        self._cores.clear()
        if self._lambdas is not None:
            self._lambdas.clear()

    def add(self, run: RunTask) -> None:
        if self._lambdas is not None and run.task.stage.kind.remote:
            self._lambdas.add(run)
        else:
            self._cores.add(run)

    def begin_early(self, what: BeginTask) -> None:
        """Begin a gather sooner or later, if it does not run by then."""
        if self._draw() < 0.8:
            self._agenda.after(self._draw() * 2, self._begin_early, self._incarnation, what)

    def _begin_early(self, incarnation: Incarnation, what: BeginTask) -> None:
        if incarnation == self._incarnation and what.task not in self._taken:
            begun = self._begun.setdefault(what.task, {})
            rows = self._tables.rows
            for key in self._early(what):
                if key not in begun:
                    begun[key] = rows.get(key)

    def _start_on_core(self, run: RunTask) -> None:
        duration = self._durations.task(run.task, self._address)
        self.busy += duration
        self._agenda.after(duration, self._end_on_core, self._incarnation, run, self._read(run))

    def _end_on_core(
        self, incarnation: Incarnation, run: RunTask, found: list[tuple[RowsKey, Rows | None]]
    ) -> None:
        self._cores.release()
        self._finished(incarnation, run, self._result(incarnation, run, found))

    def _start_on_lambda(self, run: RunTask) -> None:
        self._tasks += 1
        self._unanswered.add(self._tasks)
        self._invoke(self._tasks, self._incarnation, run)

    def _invoke(self, task: int, incarnation: Incarnation, run: RunTask) -> None:
        if task not in self._unanswered:
            return
        if incarnation != self._incarnation:
            self._answered(task)
            return
        self.invocations += 1
        self._agenda.after(self._faults.relaunch, self._invoke, task, incarnation, run)
        if self._draw() < self._faults.dead:
            return
        duration = self._durations.task(run.task, self._address)
        if self._draw() < self._faults.late:
            duration *= 20
        self._agenda.after(duration, self._end_on_lambda, task, incarnation, run, self._read(run))

    def _end_on_lambda(
        self, task: int, incarnation: Incarnation, run: RunTask, found: list[tuple[RowsKey, Rows | None]]
    ) -> None:
        self._answered(task)
        self._finished(incarnation, run, self._result(incarnation, run, found))

    def _answered(self, task: int) -> None:
        if task in self._unanswered and self._lambdas is not None:
            self._unanswered.remove(task)
            self._lambdas.release()

    def _read(self, run: RunTask) -> list[tuple[RowsKey, Rows | None]]:
        rows, begun = self._tables.rows, self._begun.pop(run.task, {})
        self._taken.add(run.task)
        return [
            *begun.items(),
            *((key, rows.get(key)) for key in self._began(self._incarnation, run) if key not in begun),
        ]

    def _result(
        self, incarnation: Incarnation, run: RunTask, found: list[tuple[RowsKey, Rows | None]]
    ) -> Result:
        rows = self._tables.rows
        reads = tuple([Read(key, read, rows.get(key) is read) for key, read in found])
        task = run.task
        return Result(task, Rows(incarnation, task.epoch, run.version, task.interval), reads)

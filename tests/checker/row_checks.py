"""Checks of tasks and rows: in which order tasks run, with which weights, and which rows they read."""

from siafu.pipeline.events import RowsArrived
from siafu.pipeline.ids import IntervalId, StageId
from siafu.pipeline.instructions import BeginTask, RunTask
from siafu.pipeline.schedule import Stage
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task
from tests.checker.symbols import Read, Result, Rows, RowsKey
from tests.checker.truth import Truth, require


class RowChecks:
    """Invariants 1, 2 and 3, as far as graph servers keep them."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def reads(self, task: Task) -> list[RowsKey]:
        """The rows that a task must read: its own of the stage before, or those that its edges lead to; and sums of all."""
        sums = [
            (task.lane, source, IntervalId(interval))
            for source in task.stage.totals
            for interval in range(self._setup.layout.num_intervals)
        ]
        if task.stage.kind.remote:
            own = [_own_key(task)] if task.stage.id else []
            return own + [key for key in sums if key not in own]
        schedule = self._setup.training if task.lane == "train" else self._setup.evaluation
        return [
            (task.lane, source, interval)
            for source in task.stage.reads
            for interval in self._in_order(task, schedule[source])
        ]

    def early_reads(self, what: BeginTask) -> list[RowsKey]:
        """Those that a gather may begin with: of the sources before the one that it is told of."""
        owner = self._setup.layout.owner
        me = owner[what.task.interval]
        end = owner[what.until] != me, what.until
        return [key for key in self.reads(what.task) if (owner[key[2]] != me, key[2]) < end]

    def _in_order(self, task: Task, source: Stage) -> list[IntervalId]:
        """The intervals that a gather reads, in the order in which it adds them: its server's own first."""
        layout = self._setup.layout
        everyone = {IntervalId(each) for each in range(layout.num_intervals)}
        read = everyone if source.everywhere else layout.reads[source.direction][task.interval]
        me = layout.owner[task.interval]
        return [each for own in (True, False) for each in sorted(read) if (layout.owner[each] == me) == own]

    def may_begin(self, truth: Truth, what: BeginTask) -> None:
        """A graph server lets a gather begin with the rows that are there."""
        lane, here = (what.task.lane, what.task.interval), (what.task.epoch, what.task.stage.id)
        require(truth.positions[lane] == here, "a gather begins when the stage before is done", what)
        require(lane not in truth.running, "no row is added to a gather that runs, or has run", what)
        require(truth.is_exact(what.task.lane, what.task.epoch), "only exact gathers begin early", what)

    def issued(self, truth: Truth, run: RunTask) -> None:
        """A graph server wants a task to be run."""
        task = run.task
        lane = task.lane, task.interval
        require(lane not in truth.running, "an interval runs one task at a time", task)
        truth.running.add(lane)
        if task.stage.id == 0:
            self._check_entry(truth, run)
            before = truth.versions.get((task.lane, task.interval, task.epoch), run.version)
            require(before == run.version, "what is run again has the version that it had", task, before)
            truth.positions[lane] = (task.epoch, 0)
            truth.versions[task.lane, task.interval, task.epoch] = run.version
        here = truth.positions[lane]
        require(here == (task.epoch, task.stage.id), "stages run in the order of the schedule", task, here)
        version = truth.versions[task.lane, task.interval, task.epoch]
        require(run.version == version, "an (interval, epoch) uses one version", task, run.version, version)
        if self._setup.mode == "sync" and task.lane == "train":
            require(here <= truth.slowest, "sync: no task before all have come to it", task, truth.slowest)

    def _check_entry(self, truth: Truth, run: RunTask) -> None:
        task = run.task
        before = truth.positions[task.lane, task.interval]
        if task.lane == "evaluate":
            require(before[0] <= task.epoch and before[1] == 0, "one evaluation at a time", task, before)
            self._check_evaluation(truth, run)
            return
        require(before == (task.epoch, 0), "an interval enters each epoch once", task, before)
        if self._setup.exact:
            early = f"{truth.closed} closed"
            require(
                task.epoch <= truth.closed,
                "nobody enters an epoch before the one before is closed",
                task,
                early,
            )
        exact = truth.is_exact("train", task.epoch)
        allowed = 0 if exact or truth.slowest[0] == truth.start.epoch else self._setup.staleness
        require(
            task.epoch <= truth.slowest[0] + allowed,
            f"no interval is more than {allowed} epochs ahead of the slowest",
            task,
            f"slowest {truth.slowest[0]}",
        )
        if truth.exact is not None and task.epoch >= truth.exact.epoch:
            wanted = truth.exact.version_of(task.epoch)
            require(run.version == wanted, "an exact epoch has its own version", task, run.version, wanted)
        elif exact:
            require(run.version == truth.start.version, "the first epoch has the first version", task)

    def _check_evaluation(self, truth: Truth, run: RunTask) -> None:
        epoch = run.task.epoch
        version = truth.evaluated.setdefault(epoch, run.version)
        require(run.version == version, "an evaluation has one version", run.task, run.version, version)
        behind = [
            position
            for interval in self._intervals()
            for position in [truth.positions["evaluate", interval]]
            if interval != run.task.interval
            and position[0] < epoch
            and (position[1] or ("evaluate", interval) in truth.running)
        ]
        require(not behind, "an evaluation begins when the one before has ended", run.task, behind)

    def _intervals(self) -> list[IntervalId]:
        return [IntervalId(number) for number in range(self._setup.layout.num_intervals)]

    def kept(self, truth: Truth, result: Result) -> None:
        """A graph server takes the result of a task."""
        task = result.task
        lane = task.lane, task.interval
        require(result.rows.incarnation == truth.incarnation, "only results of this incarnation count", task)
        here = truth.positions[lane]
        require(here == (task.epoch, task.stage.id), "a result counts once", task, here)
        require(lane in truth.running, "a result counts once", task)
        truth.running.remove(lane)
        keys = [read.key for read in result.reads]
        require(keys == self.reads(task), "a gather adds each of its sources once, in order", task, keys)
        for read in result.reads:
            self._check_read(truth, task, read)
        schedule = self._setup.training if task.lane == "train" else self._setup.evaluation
        last = task.stage.id + 1 == len(schedule)
        truth.positions[lane] = (task.epoch + 1, 0) if last else (task.epoch, task.stage.id + 1)
        truth.reach(*lane, truth.positions[lane])

    def packed(self, rows: Rows, named: RowsArrived) -> None:
        """Rows that travel."""
        same = (rows.epoch, rows.interval) == (named.epoch, named.interval)
        require(same, "rows are of the epoch that they are named by, when they are packed", named, rows)

    def stored(self, key: RowsKey, new: Rows, old: Rows | None) -> None:
        """A graph server writes rows to its tables, its own or ghosts."""
        require(
            old is None or (new.incarnation, new.epoch) > (old.incarnation, old.epoch),
            "rows take the place of older ones only",
            key,
            new,
            old,
        )

    def _check_read(self, truth: Truth, task: Task, read: Read) -> None:
        rows = read.rows
        require(rows is not None, "no task reads a row that was never made", task, read)
        if rows is None:
            return
        require(
            rows.incarnation == truth.incarnation, "no task reads rows of another incarnation", task, read
        )
        require(rows.interval == read.key[2], "each interval counts once", task, read)
        own = task.stage.kind.remote and read.key == _own_key(task)
        if own or truth.is_exact(task.lane, task.epoch):
            version = truth.versions[task.lane, task.interval, task.epoch]
            require(rows.epoch == task.epoch, "a task reads rows of its own epoch", task, read)
            require(rows.version == version, "a task reads rows made with its own version", task, read)
            require(read.unchanged, "rows are not overwritten while they are read", task, read)
            return
        staleness = self._setup.staleness
        oldest = max(truth.start.epoch, task.epoch - staleness - 1)
        require(oldest <= rows.epoch <= task.epoch + staleness, "rows are of an epoch nearby", task, read)


def _own_key(task: Task) -> RowsKey:
    return task.lane, StageId(task.stage.id - 1), task.interval

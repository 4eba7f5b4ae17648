"""Checks of eager copies: what they do beforehand, and what a server begins with that was one."""

from collections.abc import Mapping

from siafu.pipeline.events import Ready
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.ids import Address, Incarnation, IntervalId, StageId, Version
from siafu.pipeline.instructions import Abandon, Instruction, KeepResult, KeepRows, RunTask, Send
from siafu.pipeline.setup import Setup
from tests.checker.checker import GivenUp
from tests.checker.symbols import Result, Rows, RowsKey, Tables
from tests.checker.truth import Truth, require

_MAY = (Abandon, KeepResult, KeepRows, RunTask, Send)


class RunningAhead(GivenUp):
    """Looks at the tasks of an eager copy: they are none of the run's, but read what its server's tasks read."""

    def kept(self, incarnation: Incarnation, result: Result | None) -> None:
        require(result is not None, "only a result that just came is kept")
        if result is None:
            return
        task, truth = result.task, self._run.truth
        version = truth.start.version_of(task.epoch)
        forward = task.lane == "train" and task.stage.direction == "forward"
        require(forward, "an eager copy runs forward tasks", task)
        require(not task.stage.gradients, "an eager copy makes no gradient", task)
        require(task.epoch <= truth.closed, "an eager copy is in no epoch that is still to come", task)
        require(result.rows.version == version, "an eager copy has its epoch's version", result, version)
        keys = [read.key for read in result.reads]
        require(keys == self.reads(task), "a gather adds each of its sources once, in order", task, keys)
        for read in result.reads:
            rows = read.rows
            require(rows is not None, "no task reads a row that was never made", task, read)
            if rows is not None:
                require(rows.interval == read.key[2], "each interval counts once", task, read)
                require(rows.epoch == task.epoch, "a task reads rows of its own epoch", task, read)
                require(rows.version == version, "a task reads rows made with its own version", task, read)
            require(read.unchanged, "rows are not overwritten while they are read", task, read)

    def stored(self, key: RowsKey, new: Rows, old: Rows | None) -> None:
        self._run.stored(key, new, old)


def check_copy(machine: GraphCopy, what: Instruction) -> None:
    """An eager copy gives an instruction."""
    require(isinstance(what, _MAY), "an eager copy only runs tasks", machine.address, what)
    if isinstance(what, Send):
        require(isinstance(what.message, Ready), "an eager copy sends nothing", machine.address, what)


def check_adopted(
    setup: Setup, truth: Truth, server: Address, done: Mapping[IntervalId, int], tables: Tables
) -> None:
    """A server begins with what it did as an eager copy: all of it must be of the open epoch, and of its version."""
    epoch, version = truth.closed, truth.start.version_of(truth.closed)
    for interval in setup.layout.owned(server.index):
        stages = done.get(interval, 0)
        for stage in range(stages):
            rows = tables.rows.get(("train", StageId(stage), interval))
            same = rows is not None and (rows.epoch, rows.version) == (epoch, version)
            require(
                same, "what a server begins with is of the open epoch and its version", server, stage, rows
            )
        _come_to(truth, interval, stages, Version(version))


def _come_to(truth: Truth, interval: IntervalId, stages: int, version: Version) -> None:
    if stages:
        before = truth.versions.get(("train", interval, truth.closed), version)
        require(before == version, "what was done beforehand has the version that it had", interval, before)
        truth.versions["train", interval, truth.closed] = version
        truth.positions["train", interval] = (truth.closed, stages)
        truth.reach("train", interval, (truth.closed, stages))

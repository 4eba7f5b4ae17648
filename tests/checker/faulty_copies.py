"""Machines with one fault each in what eager copies do, and in how a server begins with it."""

from dataclasses import replace

from siafu.pipeline.ahead import Ahead
from siafu.pipeline.events import EpochFinished, GradientArrived, RowsArrived, RunAhead
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import FIRST_LIFE, RUN, Address, Anchor, ServerId, Version
from siafu.pipeline.instructions import KeepRows, Send
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.track import Track
from tests.checker.planted_faults import fault


@fault("pipe", losing="eager")
class RowsOfTheNextEpochAreKeptWhileTasksOfThisOneRun(GraphCopy):
    """an eager copy keeps rows of the next epoch while its tasks read those of this one"""

    def is_early(self, event):
        return isinstance(event, RunAhead) and super().is_early(event)

    def _rows_arrived(self, event, out):
        if event.epoch > self._epoch and self._track is not None:
            out.append(KeepRows(event.lane, event.epoch, event.stage, event.interval))
            return
        super()._rows_arrived(event, out)


@fault(losing="eager")
class ACopyKeepsRowsOfTheEpochBefore(GraphCopy):
    """an eager copy takes rows of the epoch before for this one's"""

    def _run_ahead(self, event, out):
        before = self._track
        super()._run_ahead(event, out)
        if before is not None and before is not self._track:
            for stage, rows in before._rows.items():
                for interval, epoch in enumerate(rows):
                    if epoch == event.epoch - 1 and self.setup.layout.owner[interval] != self.server:
                        self._track.take_rows(stage, interval, event.epoch, out)


@fault(losing="eager")
class ACopyUsesTheVersionBefore(GraphCopy):
    """an eager copy runs with the version of the epoch before"""

    def _run_ahead(self, event, out):
        super()._run_ahead(replace(event, version=Version(max(0, event.version - 1))), out)


@fault(losing="eager")
class ACopyMakesGradients(GraphCopy):
    """an eager copy sends gradients"""

    def _task_done(self, event, out):
        super()._task_done(event, out)
        home, phase = self.setup.homes[self.setup.training.parameters[0]], self.setup.training.parameters[0]
        gradient = GradientArrived(event.task.epoch, phase, event.task.interval)
        out.append(Send(Address("weight", home), gradient))


@fault(losing="eager")
class ACopyTellsMeasures(GraphCopy):
    """an eager copy says that its server has finished the epoch"""

    def _task_done(self, event, out):
        super()._task_done(event, out)
        out.append(Send(RUN, EpochFinished("train", self.server, event.task.epoch, (1.0, 0.0))))


@fault(losing="eager")
class ACopySendsItsRows(GraphCopy):
    """an eager copy sends its rows to others"""

    def _task_done(self, event, out):
        super()._task_done(event, out)
        task = event.task
        if task.stage.sends:
            rows = RowsArrived("train", task.epoch, task.stage.id, task.interval)
            out += [Send(each, rows) for each in self.setup.graph_addresses if each.index != self.server]


@fault(losing="eager")
class ACopyRunsBackwardTasks(GraphCopy):
    """an eager copy runs backward tasks, too"""

    def _run_ahead(self, event, out):
        if event.epoch > self._epoch and self.setup.ahead is not None:
            own = self.setup.layout.owned(self.server)
            self._at = Anchor(event.epoch, event.version)
            whole = self.setup.training
            self._track = Track("train", whole, self.setup.layout, own, event.epoch, self._oldest_read)
            for interval in own:
                self._track.enter(interval, event.epoch, event.version, ServerId(0), out)


@fault(losing="eager")
class WhatACopyHasOfAnEarlierEpochIsKept(GraphServer):
    """a server begins with what it has of an earlier epoch, as if it were the open one's"""

    def _begin(self, event, out):
        if self._ahead is not None:
            self._ahead = replace(self._ahead, at=event.start)
        super()._begin(event, out)


@fault(losing="eager")
class RowsThatACopyMadeAreNotSent(GraphServer):
    """rows that a server made as an eager copy are not sent when it takes the place"""

    def _count_done_ahead(self, task, out):
        self.counts.adopted += 1


@fault(losing="eager")
class AServerBeginsOneStageTooFar(GraphServer):
    """a server begins one stage further than it was as an eager copy"""

    def _begin(self, event, out):
        super()._begin(event, out)
        most = len(self.setup.ahead.stages) if self.setup.ahead is not None else 0
        self._done_ahead = {each: min(most, done + 1) for each, done in self._done_ahead.items()}


@fault(losing="eager")
class GhostsThatNeverCameAreTakenToBeThere(GraphServer):
    """a server takes ghosts to be there that it never got as an eager copy"""

    def __init__(self, setup, server, life=FIRST_LIFE, ahead=None):
        if ahead is not None and setup.ahead is not None:
            every = range(setup.layout.num_intervals)
            rows = {(stage.id, each) for stage in setup.ahead.stages if stage.sends for each in every}
            own = set(setup.layout.owned(server))
            ahead = Ahead(ahead.at, ahead.done, ahead.rows | {each for each in rows if each[1] not in own})
        super().__init__(setup, server, life, ahead)


@fault("sync", losing="eager")
class TheOthersAreNotToldHowFarACopyWas(GraphServer):
    """sync: the others are not told how far a server was as an eager copy"""

    def _tell_position(self, out):
        first = len(out)
        super()._tell_position(out)
        if self.counts.adopted and self._told[1] <= max(0, len(self.setup.ahead.stages)):
            out[first:] = [each for each in out[first:] if not isinstance(each, Send)]


@fault(shows=275, losing="eager")
class AnEpochWaitsForItsCopies(RunMachine):
    """the next epoch does not begin before all eager copies have"""

    def _proceed(self, out):
        if self._copies.keys() <= self._copies_ready:
            super()._proceed(out)


@fault(losing="eager")
class CopiesAreToldOfAnEpochTooEarly(RunMachine):
    """eager copies begin an epoch before the one before is closed"""

    def _run_ahead(self, epoch, out):
        super()._run_ahead(epoch + 1, out)

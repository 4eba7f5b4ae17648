"""Graph servers with one fault each."""

from dataclasses import replace

from siafu.pipeline.events import WeightsReleased
from siafu.pipeline.front import Front
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import FIRST_LIFE
from siafu.pipeline.instructions import BeginTask, KeepRows, RunTask, Send
from siafu.pipeline.track import Track
from tests.checker.planted_faults import fault


@fault("async")
class NoStalenessCheck(GraphServer):
    """no staleness check"""

    def _reach(self):
        return self._until


@fault("async")
class OneEpochMoreThanTheStalenessAllows(GraphServer):
    """one epoch more than the staleness allows"""

    def _reach(self):
        return super()._reach() + 1


@fault("async")
class AnIntervalRunsAheadWhileOthersReadTheFirstEpochRows(GraphServer):
    """an interval runs ahead while others read the first epoch's rows"""

    def _reach(self):
        return self._slowest() + self.setup.staleness


@fault("async")
class TheFirstEpochReadsWhatIsThere(GraphServer):
    """the first epoch reads what is there"""

    def _oldest_read(self, epoch):
        return -1


@fault("async", shows=850)
class AGatherDoesNotWaitForRowsThatAreLateBeyondTheStaleness(GraphServer):
    """a gather does not wait for rows that are late beyond the staleness"""

    def _oldest_read(self, epoch):
        return epoch if self._is_exact(epoch) else 0


@fault("pipe")
class AGatherDoesNotWait(GraphServer):
    """a gather does not wait"""

    def _oldest_read(self, epoch):
        return -1


@fault("pipe")
class AGatherTakesRowsOfTheEpochBefore(GraphServer):
    """a gather takes rows of the epoch before"""

    def _oldest_read(self, epoch):
        return max(self._start.epoch, epoch - 1)


@fault()
class GhostRowsAreNotStored(GraphServer):
    """ghost rows are not stored"""

    def _rows_arrived(self, event, out):
        super()._rows_arrived(event, out)
        out[:] = [each for each in out if not isinstance(each, KeepRows)]


@fault("pipe")
class GhostRowsAreLost(GraphServer):
    """ghost rows are lost"""

    def _rows_arrived(self, event, out):
        if event.interval != 0:
            super()._rows_arrived(event, out)


@fault()
class RowsGoToOneServerLess(GraphServer):
    """rows go to one server less"""

    def _send_rows(self, *arguments):
        out = arguments[-1]
        before = len(out)
        super()._send_rows(*arguments)
        del out[max(before, len(out) - 1) :]


@fault()
class RowsOfAnOlderEpochTakeThePlaceOfNewerOnes(GraphServer):
    """rows of an older epoch take the place of newer ones"""

    def _rows_arrived(self, event, out):
        super()._rows_arrived(event, out)
        if not out:
            out.append(KeepRows(event.lane, event.epoch, event.stage, event.interval))


@fault()
class BackwardWithAnotherVersionThanForward(GraphServer):
    """backward with another version than forward"""

    def handle(self, event):
        return [
            replace(each, version=each.version + 1)
            if isinstance(each, RunTask) and each.task.stage.direction == "backward"
            else each
            for each in super().handle(event)
        ]


@fault("pipe", shows=36)
class AnExactEpochTakesTheLatestVersion(GraphServer):
    """an exact epoch takes the latest version"""

    def _ask_weights(self, interval, epoch, out):
        super()._ask_weights(interval, epoch, out)
        out[-1] = Send(out[-1].to, replace(out[-1].message, version=None))


@fault("sync")
class SyncWithoutItsBarrier(GraphServer):
    """sync without its barrier"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        self._train.barrier = None

    def _slowest_moved(self, out):
        self._try_entries(out)


@fault()
class ResultsThatComeTwiceCountTwice(GraphServer):
    """results that come twice count twice"""

    def _task_done(self, event, out):
        track = self._train if event.task.lane == "train" else self._evaluate
        track.is_running = lambda task: True
        super()._task_done(event, out)


@fault()
class EventsOfAnotherIncarnationCount(GraphServer):
    """events of another incarnation count"""

    def __init__(self, setup, server, life=FIRST_LIFE, ahead=None):
        super().__init__(setup, server, life, ahead)
        is_void = self.fences.is_void
        self.fences.is_void = lambda stamp, event: (
            is_void(stamp, event) and stamp.incarnation >= self.fences.incarnation
        )


@fault()
class AVersionIsNeverReleased(GraphServer):
    """a version is never released"""

    def _gradient_taken(self, event, out):
        super()._gradient_taken(event, out)
        out[:] = [
            each for each in out if not (isinstance(each, Send) and isinstance(each.message, WeightsReleased))
        ]


@fault()
class AVersionIsReleasedBeforeItsLastGradient(GraphServer):
    """a version is released before its last gradient"""

    def _gradient_taken(self, event, out):
        pin = self._pins.get((event.interval, event.epoch))
        if pin is not None:
            pin.owed.intersection_update({event.phase})
        super()._gradient_taken(event, out)


@fault()
class GathersOfAnEvaluationDoNotWait(GraphServer):
    """gathers of an evaluation do not wait"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        self._evaluate.oldest_read = lambda epoch: -1


@fault()
class AnEvaluationMeasuresAreForgottenForOneInterval(GraphServer):
    """an evaluation's measures are forgotten for one interval"""

    def _count_finished(self, lane, epoch, out):
        if lane == "evaluate":
            self._measures.get((lane, epoch), {}).pop(self.intervals[0], None)
        super()._count_finished(lane, epoch, out)


class _HastyTrack(Track):
    __slots__ = ()

    def _await_totals(self, reader, source):
        """Wait for nobody."""


class _BehindTrack(Track):
    __slots__ = ()

    def _await_totals(self, reader, source):
        before = self.oldest_read
        self.oldest_read = lambda epoch: before(epoch) - 1
        super()._await_totals(reader, source)
        self.oldest_read = before


@fault("pipe")
class StatisticsAreUsedBeforeAllAreIn(GraphServer):
    """statistics are used before all are in"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        self._train.__class__ = _HastyTrack


@fault("pipe")
class StatisticsOfTheEpochBefore(GraphServer):
    """statistics of the epoch before"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        self._train.__class__ = _BehindTrack


@fault()
class AnIntervalsStatisticsCountTwice(GraphServer):
    """an interval's statistics count twice, and another's not at all"""

    def _rows_arrived(self, event, out):
        super()._rows_arrived(event, out)
        schedule = self.setup.training if event.lane == "train" else self.setup.evaluation
        if schedule[event.stage].sums:
            first = self.setup.layout.owned(self.setup.layout.owner[event.interval])[0]
            out[:] = [replace(each, interval=first) if isinstance(each, KeepRows) else each for each in out]


@fault()
class StatisticsGoOnlyWhereRowsGo(GraphServer):
    """statistics go only where rows go"""

    def _send_rows(self, lane, epoch, stage, interval, out):
        found = []
        super()._send_rows(lane, epoch, stage, interval, found)
        schedule = self.setup.training if lane == "train" else self.setup.evaluation
        near = self.setup.layout.receivers[schedule[stage].direction][interval]
        out.extend(each for each in found if each.to.index in near)


class _NeighboursTrack(Track):
    __slots__ = ()

    def _sources(self, reader, source):
        return self.layout.reads[self.schedule[source].direction][reader.interval]


@fault("pipe")
class ColumnsAreGatheredOfNeighboursAlone(GraphServer):
    """columns are gathered when the rows along edges are there, not those of all"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        self._train.__class__ = _NeighboursTrack


def _faulty_fronts(server, front):
    for track in (server._train, server._evaluate):
        for each in track._fronts.values():
            each.__class__ = front


class _OneTooFar(Front):
    def missing(self, epoch):
        until = super().missing(epoch)
        after = self._order[self._told + 1 :]
        return until if until is None or not after else after[0]


@fault("pipe")
class AGatherBeginsWithRowsThatAreNotThere(GraphServer):
    """a gather begins with rows that are not there"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        _faulty_fronts(self, _OneTooFar)


class _AsManyAsCame(Front):
    def advance(self, rows, epoch):
        told = super().advance(rows, epoch)
        came = sum(rows[each] >= epoch for each in self._order)
        self._there = self._told = max(self._told, came)
        return told or came < len(self._order)


@fault("pipe")
class AGatherAddsRowsInTheOrderInWhichTheyCome(GraphServer):
    """a gather adds rows in the order in which they come"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        _faulty_fronts(self, _AsManyAsCame)


class _NeverNew(Front):
    def advance(self, rows, epoch):
        epoch = max(self._epoch, min(epoch, 1))
        return super().advance(rows, epoch)

    def missing(self, epoch):
        return super().missing(self._epoch)


@fault("pipe")
class AGatherBeginsWithRowsOfTheEpochBefore(GraphServer):
    """a gather begins with rows of the epoch before"""

    def _reset(self, start, exact, *rest):
        super()._reset(start, exact, *rest)
        _faulty_fronts(self, _NeverNew)


@fault("pipe")
class RowsAreAddedOnceMoreToAGatherThatRuns(GraphServer):
    """rows are added once more to a gather that runs"""

    def handle(self, event):
        out = super().handle(event)
        begun = [each for each in out if isinstance(each, BeginTask)]
        if begun:
            self.__dict__.setdefault("_last_begun", begun[-1])
        last = self.__dict__.get("_last_begun")
        ran = any(isinstance(each, RunTask) and last is not None and each.task == last.task for each in out)
        if ran:
            del self.__dict__["_last_begun"]
            out.append(last)
        return out

"""Runs with one fault each."""

from dataclasses import replace

from siafu.pipeline.events import ServerGone, WeightsAsked
from siafu.pipeline.ids import Version
from siafu.pipeline.instructions import Send
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.run_machine.succession import Succession
from tests.checker.planted_faults import fault


@fault(shows=100)
class AnEvaluationEndsWhenTheFirstServerHasEndedIt(RunMachine):
    """an evaluation ends when the first server has ended it"""

    def _epoch_finished(self, event, out):
        running = self._evaluations.running
        if event.lane == "train":
            super()._epoch_finished(event, out)
        elif running is not None and running.epoch == event.epoch:
            count = self.setup.layout.num_intervals
            self._evaluated(event.epoch, (float(count), float(count * running.version)), out)


@fault("pipe")
class AnExactEpochEvaluationIsOfWhateverIsThere(RunMachine):
    """an exact epoch's evaluation is of whatever is there"""

    def _start_evaluation(self, out):
        super()._start_evaluation(out)
        out[:] = [
            Send(each.to, replace(each.message, version=None, oldest=Version(0)))
            if isinstance(each, Send) and isinstance(each.message, WeightsAsked)
            else each
            for each in out
        ]


@fault("pipe", shows=312)
class TrainingDoesNotWaitForAnEvaluationVersion(RunMachine):
    """training does not wait for an evaluation's version"""

    def _proceed(self, out):
        self._evaluations.limit = lambda records, exact: self.options.epochs
        super()._proceed(out)


@fault("async")
class ACheckpointBeforeTheWeightsHaveSettled(RunMachine):
    """a checkpoint before the weights have settled"""

    def _begin_settling(self, here, out):
        super()._begin_settling(here, out)
        self._standing.state = "settled"


@fault()
class ARunThatDoesNotWaitForAllServersToBegin(RunMachine):
    """a run that does not wait for all servers to begin"""

    def _reset(self):
        super()._reset()
        self._succession = Succession()

    def begin(self, lives=()):
        out = super().begin(lives)
        self._go_on(out)
        return out


@fault()
class ALostServerIsNotMissed(RunMachine):
    """a lost server is not missed"""

    def handle(self, event):
        if isinstance(event, ServerGone):
            return []
        return super().handle(event)


@fault()
class TheLaterOfTwoEqualModelsIsTheBest(RunMachine):
    """the later of two equal models is the best"""

    def __init__(self, setup, options, score, **rest):
        super().__init__(setup, options, score, **rest)

    def _evaluated(self, epoch, measures, out):
        best = self._records.best
        if best is not None and best.score == self._score(measures):
            self._records.best = None
        super()._evaluated(epoch, measures, out)


@fault("async")
class TheRunDoesNotWaitForItsBestModel(RunMachine):
    """the run ends, or is saved, before its best model is kept"""

    def _evaluated(self, epoch, measures, out):
        super()._evaluated(epoch, measures, out)
        self._best_on_its_way = None


@fault(shows=12)
class PatienceEndsAnEpochLate(RunMachine):
    """patience ends an epoch late"""

    def __init__(self, setup, options, score, **rest):
        super().__init__(setup, options, score, **rest)
        ends = self._limits.patience_ends
        self._limits.patience_ends = lambda records: ends(records) + 1


@fault("async")
class AfterALossItGoesOnFromAnotherVersionThanTheCheckpoint(RunMachine):
    """after a loss it goes on from another version than the checkpoint's"""

    def _begin_again(self, out):
        super()._begin_again(out)
        if self.fences.incarnation > 0:
            self._records.recorded = self._records.trained = self._records.trained + 1

"""Machines with one fault each in how epochs close, and in what a loss leaves of them."""

from siafu.pipeline.events import Proceed, StateMade
from siafu.pipeline.ids import Anchor, Epoch, Version
from siafu.pipeline.instructions import (
    CloseEpochs,
    HoldCheckpoint,
    KeepState,
    Rewind,
    SaveCheckpoint,
    Send,
)
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from tests.checker.planted_faults import fault


@fault("pipe")
class AnEpochBeginsBeforeTheOneBeforeIsClosed(RunMachine):
    """an epoch begins before the one before is closed"""

    def _proceed(self, out):
        until = Epoch(
            min(
                self._limits.next(self._records),
                self._evaluations.limit(self._records, self._exact),
                self._records.trained + 2,
            )
        )
        if until > self._until and self._standing.state == "going":
            self._until = until
            message = Proceed(until, self._exact)
            out.extend(Send(to, message) for to in self.setup.graph_addresses)


@fault("pipe")
class AnEpochIsClosedBeforeItsVersionIsKept(RunMachine):
    """an epoch is closed before its version is kept"""

    def _close(self, closing, out):
        closing._kept = {home: kept | {closing.anchor.version + 1} for home, kept in closing._kept.items()}
        return super()._close(closing, out)


@fault("pipe", shows=190)
class TheVersionOfAnEvaluationIsNotKept(RunMachine):
    """the run lets go of the version that is evaluated"""

    def _close(self, closing, out):
        closed = super()._close(closing, out)
        out[:] = [
            CloseEpochs(each.epochs, each.version, None) if isinstance(each, CloseEpochs) else each
            for each in out
        ]
        return closed


@fault("pipe", shows=590, losing="again")
class AnEvaluationIsForgottenAfterALoss(RunMachine):
    """after a loss, an evaluation that was under way is asked for again, of a version that nobody has"""

    def _reset(self):
        self._evaluations.running = None
        super()._reset()


@fault("sync", losing="again")
class AnExactRunGoesBackToItsCheckpoint(RunMachine):
    """after a loss, an exact run goes back to its checkpoint"""

    def _lose(self, event, out):
        self._closing.anchor = self._saved.anchor
        self._begin_records()
        super()._lose(event, out)


@fault("pipe", losing="again")
class ARecordIsTakenBack(RunMachine):
    """after a loss, a record is taken back"""

    def _lose(self, event, out):
        super()._lose(event, out)
        out[0] = Rewind(Epoch(max(0, out[0].epochs - 1)), False)


@fault("pipe", losing="again")
class AfterALossItBeginsOneEpochLater(RunMachine):
    """after a loss, the open epoch is left out"""

    def _lose(self, event, out):
        anchor = self._closing.anchor
        self._closing.anchor = Anchor(Epoch(anchor.epoch + 1), anchor.version)
        super()._lose(event, out)


@fault("sync")
class AStateIsKeptUnderAnotherVersion(RunMachine):
    """a state is kept under the version before"""

    def _state_made(self, event, out):
        super()._state_made(event, out)
        out[:] = [
            KeepState(each.home, Version(each.version - 1), each.epochs)
            if isinstance(each, KeepState)
            else each
            for each in out
        ]


@fault("sync")
class AnotherVersionIsHeldForACheckpoint(RunMachine):
    """what is held for a checkpoint is the version before"""

    def _close(self, closing, out):
        done = super()._close(closing, out)
        out[:] = [
            HoldCheckpoint(each.epochs, Version(each.version - 1))
            if isinstance(each, HoldCheckpoint)
            else each
            for each in out
        ]
        return done


@fault("pipe")
class ACheckpointIsSavedBeforeItsEvaluation(RunMachine):
    """a checkpoint is saved when its epoch is closed, not when it is recorded"""

    def _close(self, closing, out):
        done = super()._close(closing, out)
        out += [SaveCheckpoint(each.epochs, each.version) for each in out if isinstance(each, HoldCheckpoint)]
        self._held.clear()
        return done


@fault("pipe")
class AStateIsNotTold(WeightServer):
    """a home keeps the state of what it made to itself"""

    def _update_done(self, event, out):
        super()._update_done(event, out)
        out[:] = [
            each for each in out if not (isinstance(each, Send) and isinstance(each.message, StateMade))
        ]


@fault("pipe", shows=590, losing="again")
class AnEvaluationThatIsRunAgainHoldsNothing(WeightServer):
    """after a loss, nobody holds the version of an evaluation that is run again"""

    def _hold_for(self, evaluation):
        return None


@fault("async", losing="again")
class AnAsynchronousRunGoesBackToItsCheckpoint(RunMachine):
    """after a loss, an asynchronous run goes back to its checkpoint"""

    def _lose(self, event, out):
        if self._closing is not None:
            self._closing.anchor = self._saved.anchor
            self._begin_records()
        super()._lose(event, out)


@fault("async", shows=1085)
class OneEpochClosesAtATime(RunMachine):
    """of asynchronous epochs that are all finished, one is closed"""

    def _close(self, closing, out):
        self._closed_now = not getattr(self, "_closed_now", False) and super()._close(closing, out)
        return self._closed_now


@fault("async", shows=480, losing="again")
class ABestModelThatIsLostCountsAsKept(RunMachine):
    """after a loss, a best model that was on its way is not made again"""

    def _forget_evaluation(self):
        self._evaluations.running = None


@fault("async", shows=1980)
class ARunForgetsThatItTurnsExact(RunMachine):
    """after a loss, a run that was turning exact is asynchronous again"""

    def _reset(self):
        self._switching = False
        super()._reset()

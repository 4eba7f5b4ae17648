"""Machines with one fault each in how a server takes a lost one's place within an epoch."""

from dataclasses import replace

from siafu.pipeline.again import rows_again
from siafu.pipeline.events import Proceed, Resume, RowsArrived, ServerAdvanced, WeightsAsked, WeightsMade
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import FIRST_LIFE, Anchor, Epoch, Version
from siafu.pipeline.instructions import ForgetGradients, FreeWeights, Send
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from siafu.weights.ledger import Ledger
from tests.checker.planted_faults import fault


def leave_out(out, first, kind, **fields):
    """Take back the messages of a kind, of those from the `first` on, that have these fields."""
    out[first:] = [
        each
        for each in out[first:]
        if not (
            isinstance(each, Send)
            and isinstance(each.message, kind)
            and all(getattr(each.message, name) == value for name, value in fields.items())
        )
    ]


def hears_earlier_lives(fences):
    """Fences that look at the incarnation alone."""
    fences.is_void = lambda stamp, event: (
        stamp.incarnation != fences.incarnation
        and not (isinstance(event, Resume) or stamp.incarnation > fences.incarnation)
    )


def hears_what_was_meant_for_others(fences):
    """Fences that do not look at the receiver's life."""
    is_void = fences.is_void
    fences.is_void = lambda stamp, event: is_void(replace(stamp, to_life=fences._life), event)


@fault("pipe", losing="within")
class RowsAreNotSentAgain(GraphServer):
    """rows are not sent again"""

    def _send_rows_again(self, event, out):
        pass


@fault(shows=22, losing="within")
class AnEvaluationsRowsAreNotSentAgain(GraphServer):
    """an evaluation's rows are not sent again"""

    def _send_rows_again(self, event, out):
        first = len(out)
        super()._send_rows_again(event, out)
        leave_out(out, first, RowsArrived, lane="evaluate")


@fault(losing="within")
class GradientsAreNotSentAgain(GraphServer):
    """gradients are not sent again to a new weight server"""

    def _send_gradients_again(self, event, out):
        out.extend(asked for asked in self._asked.values() if asked.to == event.server)


@fault(shows=11, losing="within")
class WeightsAreNotAskedForAgain(GraphServer):
    """weights are not asked for again"""

    def _send_gradients_again(self, event, out):
        first = len(out)
        super()._send_gradients_again(event, out)
        leave_out(out, first, WeightsAsked)


@fault("sync", losing="within")
class PositionsAreNotToldAgain(GraphServer):
    """sync: positions are not told again"""

    def _send_rows_again(self, event, out):
        first = len(out)
        super()._send_rows_again(event, out)
        leave_out(out, first, ServerAdvanced)


@fault(shows=15, losing="within")
class GradientsAreLetGoWhenTheyAreTaken(GraphServer):
    """gradients are let go when they are taken"""

    def _gradient_taken(self, event, out):
        super()._gradient_taken(event, out)
        out.append(ForgetGradients(Epoch(event.epoch + 1)))


@fault(losing="within")
class GraphServersHearAnEarlierLife(GraphServer):
    """graph servers hear an earlier life"""

    def __init__(self, setup, server, life=FIRST_LIFE, ahead=None):
        super().__init__(setup, server, life, ahead)
        hears_earlier_lives(self.fences)


@fault(shows=22, losing="within")
class RowsOfAnEarlierEpochAreSentUnderThisOnesName(GraphServer):
    """rows of an earlier epoch are sent again under this one's name"""

    def _send_rows_again(self, event, out):
        now, server = event.start.epoch, event.server.index
        for earlier in range(now):
            for rows in rows_again(self.setup, self._train, Epoch(earlier), server):
                out.append(Send(event.server, replace(rows, epoch=now)))
        super()._send_rows_again(event, out)


@fault(losing="within")
class ANewLifeBeginsBeforeAllKnowOfIt(GraphServer):
    """a new life begins before all know of it"""

    def _begin(self, event, out):
        super()._begin(event, out)
        if isinstance(event, Resume):
            self._proceed(Proceed(Epoch(event.start.epoch + 1), event.start), out)


@fault(losing="within")
class WhatWasMeantForAnEarlierLifeIsHeard(GraphServer):
    """what was meant for an earlier life is heard"""

    def __init__(self, setup, server, life=FIRST_LIFE, ahead=None):
        super().__init__(setup, server, life, ahead)
        hears_what_was_meant_for_others(self.fences)


@fault("pipe", losing="within")
class AnEpochIsFinishedBeforeItsTasksAreRunAgain(GraphServer):
    """an epoch is finished as soon as its gradients are taken, also those that an earlier life made"""

    def _try_finish(self, interval, epoch, out):
        pin = self._pins.get((interval, epoch))
        if pin is not None and self.fences._life > FIRST_LIFE:
            pin.owed.clear()
            self._train.passes[interval].epoch, before = Epoch(epoch + 1), self._train.passes[interval].epoch
            super()._try_finish(interval, epoch, out)
            self._train.passes[interval].epoch = before
            return
        super()._try_finish(interval, epoch, out)


@fault(losing="within")
class AGradientThatComesAgainIsNotAcknowledged(WeightServer):
    """a gradient that comes again is not acknowledged"""

    def _gradient_arrived(self, event, out):
        first, before = len(out), self.counts.duplicates
        super()._gradient_arrived(event, out)
        if self.counts.duplicates > before:
            del out[first:]


@fault(losing="within")
class AVersionIsFreedWhenTheNextIsThere(WeightServer):
    """a version is freed when the next is there"""

    def _hold(self, home, version, out):
        super()._hold(home, version, out)
        for each in [held for held in self._held if held < self._latest]:
            del self._held[each]
            out.append(FreeWeights(each))


@fault("sync", shows=177, losing="within")
class ANewWeightServerDoesNotShareItsPart(WeightServer):
    """a new weight server does not share its part"""

    def _begin(self, event, out):
        super()._begin(event, out)
        leave_out(out, 0, WeightsMade)


@fault(losing="within")
class ANewWeightServerIsNotToldOfParts(WeightServer):
    """a new weight server is not told of parts made meanwhile"""

    def _share_again(self, event, out):
        pass


@fault(losing="within")
class AnIntervalThatAsksAgainIsNotAnswered(WeightServer):
    """an interval that asks again is not answered"""

    def _forget_asked(self, event):
        pass


@fault(shows=64, losing="within")
class ANewLifesGradientsCountAgain(WeightServer):
    """a new life's gradients count again"""

    def _taken_over(self, event, out):
        super()._taken_over(event, out)
        self._gradients._ledger = Ledger(event.start.epoch)


@fault(losing="within")
class WeightServersHearAnEarlierLife(WeightServer):
    """weight servers hear an earlier life"""

    def __init__(self, setup, server, life=FIRST_LIFE):
        super().__init__(setup, server, life)
        hears_earlier_lives(self.fences)


@fault(shows=5, losing="within")
class ALostServersMeasuresAreNotTakenBack(RunMachine):
    """a lost server's measures stay"""

    def _replace(self, server, life, out):
        parts = {key: dict(each) for key, each in self._records._parts.items()}
        super()._replace(server, life, out)
        self._records._parts = parts


@fault(shows=15, losing="within")
class ALostWeightServersVersionCountsAsKept(RunMachine):
    """a lost weight server's version counts as kept"""

    def _replace(self, server, life, out):
        kept = {home: set(each) for home, each in self._closing._kept.items()}
        super()._replace(server, life, out)
        self._closing._kept = kept


@fault("pipe", shows=2220, losing="within")
class TheVersionOfAnEvaluationIsNotGivenToANewWeightServer(RunMachine):
    """the version of an evaluation is not given to a new weight server"""

    def _replace(self, server, life, out):
        super()._replace(server, life, out)
        out[-1] = Send(server, replace(out[-1].message, evaluation=None))


@fault(shows=64, losing="within")
class TheRunHearsAnEarlierLife(RunMachine):
    """the run hears an earlier life"""

    def begin(self, lives=()):
        hears_earlier_lives(self.fences)
        return super().begin(lives)


@fault(losing="within")
class OneWhoHadFinishedIsResumedAnEpochLater(RunMachine):
    """one who had finished is resumed an epoch later"""

    def _replace(self, server, life, out):
        anchor = self._closing.anchor
        finished = self._records.has("train", server.index, anchor.epoch) and server.role == "graph"
        super()._replace(server, life, out)
        if finished:
            later = Anchor(Epoch(anchor.epoch + 1), Version(anchor.version + 1))
            out[-1] = Send(server, replace(out[-1].message, start=later))


@fault(losing="within")
class OneWhoJoinsGoesOnBeforeAllHaveNotedIt(RunMachine):
    """one who joins goes on before all have noted it"""

    def _tell_joined(self, out):
        super()._tell_joined(out)
        self._succession._unnoted.clear()
        self._let_join(out)


@fault(shows=675, losing="within")
class AnEpochIsClosedWhileAServerIsReplaced(RunMachine):
    """an epoch is closed while a server is replaced, whose rows others still need"""

    def _epoch_finished(self, event, out):
        super()._epoch_finished(event, out)
        self._close(self._closing, out)
        self._proceed(out)


@fault(losing="within")
class AReplacementIsNotToldHowFarItMayGo(RunMachine):
    """one who joins is not told how far it may go"""

    def _let_join(self, out):
        first = len(out)
        super()._let_join(out)
        leave_out(out, first, Proceed)


@fault(losing="within")
class ASecondLossOfTheSameLifeCounts(RunMachine):
    """what a server is given up for twice replaces it twice"""

    def handle(self, event):
        if hasattr(event, "life") and hasattr(event, "server") and type(event).__name__ == "ServerGone":
            event = replace(event, life=self.fences.life(event.server))
            return super().handle(event) + super().handle(replace(event, life=event.life + 1))
        return super().handle(event)


@fault(shows=135, losing="within")
class TrainingGoesOnWhileAServerIsHandedOver(RunMachine):
    """the next epoch begins while a server is handed over"""

    def _hand_over(self, out):
        super()._hand_over(out)
        self._proceed(out)


@fault(losing="within")
class AServerIsHandedOverUnderItsOwnName(RunMachine):
    """one that is handed over is heard as if it were its successor"""

    def _hand_over(self, out):
        lives = dict(self.fences._lives)
        super()._hand_over(out)
        self.fences._lives = lives
        self.fences._stamps.clear()

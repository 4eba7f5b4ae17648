"""Weight servers with one fault each."""

from siafu.pipeline.events import GradientArrived, WeightsMade
from siafu.pipeline.gradients import Gradients
from siafu.pipeline.ids import FIRST_LIFE
from siafu.pipeline.instructions import Accumulate, Send, Update
from siafu.pipeline.weight_server import WeightServer
from tests.checker.planted_faults import fault


class _Forgetful:
    def record(self, *key):
        return True


@fault()
class AGradientThatComesTwiceIsAppliedTwice(WeightServer):
    """a gradient that comes twice is applied twice"""

    def _reset(self, start, exact):
        super()._reset(start, exact)
        self._gradients._ledger = _Forgetful()


@fault()
class AVersionIsFreedWhileItIsInUse(WeightServer):
    """a version is freed while it is in use"""

    def _free_unused(self, out):
        uses, self._pinned.uses = self._pinned.uses, {}
        super()._free_unused(out)
        self._pinned.uses = uses


@fault()
class AVersionIsNeverFreed(WeightServer):
    """a version is never freed"""

    def _free_unused(self, out):
        pass


class _Hasty(Gradients):
    def complete(self, version):
        self._num_intervals -= 1
        try:
            return self._num_intervals > 0 and super().complete(version)
        finally:
            self._num_intervals += 1


@fault("pipe")
class AnUpdateBeforeAllGradientsAreThere(WeightServer):
    """an update before all gradients are there"""

    def _reset(self, start, exact):
        super()._reset(start, exact)
        self._gradients.__class__ = _Hasty


class _NoFirstEpoch(Gradients):
    def complete(self, version):
        self._of_first_epoch = self._num_intervals * len(self._phases)
        return super().complete(version)


@fault("async")
class AnUpdateWithinTheFirstEpoch(WeightServer):
    """an update within the first epoch"""

    def _reset(self, start, exact):
        super()._reset(start, exact)
        self._gradients.__class__ = _NoFirstEpoch


class _AsTheyCome(Gradients):
    def _take_in_turn(self, epoch, phase, interval):
        version = self._anchor.version_of(epoch) + 1
        self._added[phase, version] += 1
        return [Accumulate(phase, version, epoch, interval)]


@fault("pipe")
class ExactSumsInTheOrderOfArrival(WeightServer):
    """exact sums in the order of arrival"""

    def _reset(self, start, exact):
        super()._reset(start, exact)
        self._gradients.__class__ = _AsTheyCome


@fault()
class ANewVersionIsNotSentToOneOfTheOthers(WeightServer):
    """a new version is not sent to one of the others"""

    def _update_done(self, event, out):
        super()._update_done(event, out)
        sent = [each for each in out if isinstance(each, Send) and isinstance(each.message, WeightsMade)]
        if sent:
            out.remove(sent[-1])


@fault()
class AVersionIsGivenOutBeforeAllItsPartsAreThere(WeightServer):
    """a version is given out before all its parts are there"""

    def _is_complete(self, version):
        return version in self._held


@fault()
class VersionsAreMadeWithoutRoomForThem(WeightServer):
    """versions are made without room for them"""

    def _reset(self, start, exact):
        super()._reset(start, exact)
        self._room = {}


@fault("async", shows=1960)
class AVersionIsGivenOutThatWasPromisedToBeFree(WeightServer):
    """a version is given out that was promised to be free"""

    def _try_grant(self, asked, out):
        due, self._due = self._due, self._latest
        try:
            return super()._try_grant(asked, out)
        finally:
            self._due = due


@fault("async")
class WhatIsLeftAtALimitIsNotApplied(WeightServer):
    """what is left at a limit is not applied"""

    def _settle(self, event, out):
        self._settling = event
        self._latest, latest = event.anchor.version, self._latest
        self._try_settled(out)
        self._latest = latest


@fault()
class AnOldRequestIsGrantedAgain(WeightServer):
    """an old request is granted again"""

    def _weights_asked(self, event, out):
        self._asked.pop(event.interval, None)
        super()._weights_asked(event, out)


@fault()
class GradientsOfAnotherIncarnationCount(WeightServer):
    """gradients of another incarnation count"""

    def __init__(self, setup, server, life=FIRST_LIFE):
        super().__init__(setup, server, life)
        is_void = self.fences.is_void
        self.fences.is_void = lambda stamp, event: (
            is_void(stamp, event) and not isinstance(event, GradientArrived)
        )


@fault()
class AnUpdateIsMadeTwice(WeightServer):
    """an update is made twice"""

    def _try_update(self, out):
        super()._try_update(out)
        out.extend([each for each in out if isinstance(each, Update)])

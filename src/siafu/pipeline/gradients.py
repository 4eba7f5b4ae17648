"""Gradients: those that came to a weight server for the parameters whose home it is, and the versions they make."""

from collections import Counter, defaultdict

from siafu.pipeline.ids import Anchor, Epoch, IntervalId, PhaseId, Version
from siafu.pipeline.instructions import Accumulate
from siafu.weights.ledger import Ledger


class Gradients:
    """Counts each gradient once, gives it to a version and says when that version has all of its own.

    Where epochs are exact, an epoch's gradients make one version and are added in the order of the intervals. Else they
    are added as they come: those of an epoch to one version, so that every step is of the whole graph's gradient
    however far some intervals are ahead; or, where a number was asked for, `an_update` of them to a version. But none is
    made before all of the first epoch have come, so that everyone enters that epoch with the same weights.

    an_update: None: an epoch's
    """

    def __init__(
        self,
        phases: tuple[PhaseId, ...],
        num_intervals: int,
        an_update: int | None,
        start: Anchor,
        exact: bool,
    ) -> None:
        self._phases = phases
        self._num_intervals = num_intervals
        self._an_update = an_update
        self._start = start
        self._anchor = start
        self._exact = exact
        self._ledger = Ledger(start.epoch)
        self._of_first_epoch = 0
        self._since_anchor: Counter[PhaseId] = Counter()
        self._added: Counter[tuple[PhaseId, Version]] = Counter()
        self._early: defaultdict[tuple[PhaseId, Version], set[IntervalId]] = defaultdict(set)

    def take(self, epoch: Epoch, phase: PhaseId, interval: IntervalId) -> list[Accumulate] | None:
        """A gradient came: those that can be added now. None: this one came before."""
        if not self._ledger.record(epoch, phase, interval):
            return None
        if epoch == self._start.epoch:
            self._of_first_epoch += 1
        if self._exact:
            return self._take_in_turn(epoch, phase, interval)
        version = self._version(epoch, phase)
        self._added[phase, version] += 1
        return [Accumulate(phase, version, epoch, interval)]

    def is_early(self, epoch: Epoch, phase: PhaseId, interval: IntervalId) -> bool:
        """Whether a gradient came before its turn."""
        version = Version(self._anchor.version_of(epoch) + 1)
        return self._exact and interval in self._early.get((phase, version), ())

    def _version(self, epoch: Epoch, phase: PhaseId) -> Version:
        """The one that a gradient which just came is for."""
        if self._an_update is None:
            return Version(self._anchor.version_of(epoch) + 1)
        before = self._since_anchor[phase]
        self._since_anchor[phase] += 1
        return Version(self._anchor.version + 1 + before // self._an_update)

    def settle(self, anchor: Anchor, exact: bool) -> None:
        """No gradient is on its way: those that came make the versions up to the anchor's, the last perhaps of few."""
        self._anchor = anchor
        self._exact = exact
        self._since_anchor.clear()

    def complete(self, version: Version) -> bool:
        """Whether `version` has all its gradients."""
        if version <= self._anchor.version:
            return True
        if self._of_first_epoch < self._num_intervals * len(self._phases):
            return False
        full = self._num_intervals if self._exact or self._an_update is None else self._an_update
        return all(self._added[phase, version] >= full for phase in self._phases)

    def forget(self, version: Version) -> None:
        """`version` is made."""
        for phase in self._phases:
            self._added.pop((phase, version), None)
            self._early.pop((phase, version), None)

    def _take_in_turn(self, epoch: Epoch, phase: PhaseId, interval: IntervalId) -> list[Accumulate]:
        version = Version(self._anchor.version_of(epoch) + 1)
        key = phase, version
        early = self._early[key]
        early.add(interval)
        found = []
        while (turn := IntervalId(self._added[key])) in early:
            early.remove(turn)
            self._added[key] += 1
            found.append(Accumulate(phase, version, epoch, turn))
        return found

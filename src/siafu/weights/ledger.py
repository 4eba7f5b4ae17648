"""Ledger: which gradients have come, so that each is counted once however often it is sent."""

Epoch = int
Phase = int
Interval = int


class Ledger:
    """Remembers every (epoch, phase, interval) of a run that begins with `first_epoch`.

    The epochs of a phase of an interval come more or less in order: those up to a mark have all come, and only
    the few beyond it are kept one by one. So a ledger grows with phases and intervals, not with epochs.
    """

    def __init__(self, first_epoch: Epoch = 0) -> None:
        self._first_epoch = first_epoch
        self._next: dict[tuple[Phase, Interval], Epoch] = {}
        self._beyond: dict[tuple[Phase, Interval], set[Epoch]] = {}

    def has(self, epoch: Epoch, phase: Phase, interval: Interval) -> bool:
        """Whether it was recorded, or is of an epoch before the first."""
        key = phase, interval
        return epoch < self._next.get(key, self._first_epoch) or epoch in self._beyond.get(key, ())

    def record(self, epoch: Epoch, phase: Phase, interval: Interval) -> bool:
        """True the first time, False ever after."""
        if self.has(epoch, phase, interval):
            return False
        key = phase, interval
        beyond = self._beyond.setdefault(key, set())
        beyond.add(epoch)
        following = self._next.get(key, self._first_epoch)
        while following in beyond:
            beyond.remove(following)
            following += 1
        self._next[key] = following
        return True

"""ReplayedTraining: how far a training has come, whatever the time of an epoch is meanwhile."""


class ReplayedTraining:
    """Epochs that are done, and the share of the open one.

    A checkpoint, after every so many epochs but not after the last, is the end of the epoch before it.
    """

    def __init__(self, epochs: int, every: int | None, saving: float) -> None:
        self.done, self.share = 0, 0.0
        self._epochs, self._every = epochs, every
        self._saving = saving if every is not None else 0.0

    def left(self, pace: float) -> float:
        """Seconds until the end, where an epoch takes so long."""
        return self._cost(self._epochs, pace) - self._position(pace)

    def work(self, seconds: float, pace: float) -> None:
        """Go on for so long."""
        position = self._position(pace) + seconds
        every = self._every or self._epochs
        group = every * pace + self._saving
        whole = int(position / group)
        rest = position - whole * group
        within = min(every - 1, int(rest / pace))
        self.done = whole * every + within
        self.share = min(1.0, (rest - within * pace) / self._item(self.done, pace))

    def go_back(self, pace: float) -> int:
        """To the last checkpoint; how many epochs that had ended are lost."""
        assert self._every is not None
        ended = self.done + (self.share * self._item(self.done, pace) >= pace)
        kept = self.done // self._every * self._every
        self.done, self.share = kept, 0.0
        return ended - kept

    def _item(self, epoch: int, pace: float) -> float:
        """Seconds of an epoch, with the checkpoint after it."""
        saves = self._every is not None and (epoch + 1) % self._every == 0 and epoch + 1 < self._epochs
        return pace + (self._saving if saves else 0.0)

    def _position(self, pace: float) -> float:
        return self._cost(self.done, pace) + self.share * self._item(self.done, pace)

    def _cost(self, epochs: int, pace: float) -> float:
        """Seconds of the first so many epochs."""
        saved = 0 if self._every is None else min(epochs, self._epochs - 1) // self._every
        return epochs * pace + saved * self._saving

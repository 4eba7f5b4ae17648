"""Sampling: which epochs of a run are traced in full."""

from dataclasses import dataclass

_FIRST = 3
_MORE = 16


@dataclass(frozen=True, slots=True)
class Sampling:
    """The first few epochs, some more at equal distances, and the last, which nobody knows before it has ended.

    epochs: how many there will be at most
    full:   all of them
    """

    epochs: int
    full: bool = False

    @property
    def distance(self) -> int:
        """Epochs from one that is traced to the next."""
        return max(1, -(-self.epochs // _MORE))

    def wants(self, epoch: int) -> bool:
        """Whether an epoch, counted from 1, is traced whether or not it is the last."""
        return self.full or epoch <= _FIRST or epoch % self.distance == 0

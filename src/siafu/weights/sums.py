"""Sums of gradients: in the order of intervals, which always gives the same bits, or in the order of arrival."""

from typing import Protocol

from torch import Tensor

from siafu.weights.ledger import Epoch, Interval, Phase
from siafu.weights.optimizer import Weights


class GradientSum(Protocol):
    """Gradients added up by parameter name, also those that several phases give of one parameter."""

    def add(self, epoch: Epoch, phase: Phase, interval: Interval, gradients: Weights) -> None:
        """Take a contribution, which may be empty. The tensors are read now or later, and never changed."""

    def take(self) -> dict[str, Tensor]:
        """The sum of all that came since the last time."""

    @property
    def num_bytes(self) -> int:
        """The memory of what was not taken yet."""


class ArrivalOrder:
    """Adds each contribution as it comes."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, epoch: Epoch, phase: Phase, interval: Interval, gradients: Weights) -> None:
        add_into(self._sums, gradients)

    def take(self) -> dict[str, Tensor]:
        taken, self._sums = self._sums, {}
        return taken

    @property
    def num_bytes(self) -> int:
        return num_bytes(self._sums)


class IntervalOrder:
    """Adds a phase's contributions of an epoch from interval 0 up, and then the phases from the first up.

    The sum has the same bits whatever the order of arrival. A contribution that comes before its turn is held
    back; `take` adds those whose turn never came, still in order, since not every interval has a gradient.
    """

    def __init__(self) -> None:
        self._queues: dict[tuple[Epoch, Phase], _Queue] = {}

    def add(self, epoch: Epoch, phase: Phase, interval: Interval, gradients: Weights) -> None:
        self._queues.setdefault((epoch, phase), _Queue()).add(interval, gradients)

    def take(self) -> dict[str, Tensor]:
        queues, self._queues = self._queues, {}
        total: dict[str, Tensor] = {}
        for key in sorted(queues):
            add_into(total, queues[key].finish())
        return total

    @property
    def num_bytes(self) -> int:
        return sum(queue.num_bytes for queue in self._queues.values())

    @property
    def held_back(self) -> int:
        """How many contributions wait for those of earlier intervals."""
        return sum(len(queue.early) for queue in self._queues.values())


class _Queue:
    """One phase's contributions in one epoch.

    sums:  of the intervals before `turn`
    early: those after it, by interval
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.early: dict[Interval, Weights] = {}
        self.turn: Interval = 0

    def add(self, interval: Interval, gradients: Weights) -> None:
        self.early[interval] = gradients
        while self.turn in self.early:
            add_into(self.sums, self.early.pop(self.turn))
            self.turn += 1

    def finish(self) -> dict[str, Tensor]:
        for interval in sorted(self.early):
            add_into(self.sums, self.early.pop(interval))
        return self.sums

    @property
    def num_bytes(self) -> int:
        return num_bytes(self.sums) + sum(num_bytes(gradients) for gradients in self.early.values())


def add_into(sums: dict[str, Tensor], gradients: Weights) -> None:
    """Add to tensors that `sums` has to itself: the first of a name is copied."""
    for name, gradient in gradients.items():
        if name in sums:
            sums[name].add_(gradient)
        else:
            sums[name] = gradient.detach().clone()


def num_bytes(tensors: Weights) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())

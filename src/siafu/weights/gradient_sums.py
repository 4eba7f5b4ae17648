"""GradientSums: gradients of weights that are added up as they come."""

from collections.abc import Mapping

from torch import Tensor


class GradientSums:
    """Sums by name. The first that comes is kept as it is, so that a single one is never copied; given tensors are not changed.

    sums: so far
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self._own: set[str] = set()

    def add(self, gradients: Mapping[str, Tensor]) -> None:
        for name, gradient in gradients.items():
            if name not in self.sums:
                self.sums[name] = gradient.detach()
            elif name in self._own:
                self.sums[name].add_(gradient)
            else:
                self.sums[name] = self.sums[name] + gradient.detach()
                self._own.add(name)

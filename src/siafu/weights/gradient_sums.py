"""GradientSums: gradients of weights that are added up as they come."""

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from siafu.weights.vertex_rows import vertices_beside


class GradientSums:
    """Sums by name. The first that comes is kept as it is, so that a single one is never copied; given tensors are not changed.

    sums: so far

    rows: how many a weight has, by name, where gradients come with the vertices that they are of
    """

    def __init__(self, rows: Mapping[str, int] = MappingProxyType({})) -> None:
        self.sums: dict[str, Tensor] = {}
        self._rows = rows
        self._own: set[str] = set()

    def add(self, gradients: Mapping[str, Tensor]) -> None:
        for name, vertices in vertices_beside(gradients).items():
            gradient = gradients[name].detach()
            if vertices is not None:
                self._add_rows(name, vertices, gradient)
            elif name not in self.sums:
                self.sums[name] = gradient
            elif name in self._own:
                self.sums[name].add_(gradient)
            else:
                self.sums[name] = self.sums[name] + gradient
                self._own.add(name)

    def _add_rows(self, name: str, vertices: Tensor, rows: Tensor) -> None:
        if name not in self.sums:
            self.sums[name] = rows.new_zeros((self._rows[name], *rows.shape[1:]))
            self._own.add(name)
        found = self.sums[name]
        # `index_add_` would go from row to row: a vertex comes once in a task.
        found.index_copy_(0, vertices, found.index_select(0, vertices).add_(rows))

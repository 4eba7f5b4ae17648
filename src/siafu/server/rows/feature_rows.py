"""FeatureRows: a graph's features in the type to compute in, all of them or a range of rows at a time."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.base.storage.mapped import read_soon
from siafu.graph import Graph

_ROWS = 1 << 16  # that are normalized at a time, where columns are copied


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """The rows that a model is trained on; those of a store stay in its mapped files.

    normalize: whether each row is divided by the sum of its magnitudes
    some:      [V, columns] some columns of them, already normalized; None: all, as the graph has them
    """

    graph: Graph
    dtype: torch.dtype
    normalize: bool
    some: NDArray[np.generic] | None = None

    @property
    def as_stored(self) -> bool:
        """Whether they are used as they are stored."""
        kind = self._stored.dtype
        return not self.normalize and kind == torch.empty(0, dtype=self.dtype).numpy().dtype

    def whole(self) -> Tensor:
        """All rows: the stored array itself, or a copy in memory."""
        return self.block(0, len(self._stored))

    def block(self, first: int, last: int) -> Tensor:
        """The rows first:last."""
        return self.computed(self._stored[first:last])

    def read_soon(self, first: int, last: int) -> None:
        """Have the rows first:last read from the store's file before they are used."""
        read_soon(self._stored[first:last])

    def of(self, vertices: NDArray[np.int64]) -> Tensor:
        """Those of some vertices, copied."""
        # `take` lets other threads run meanwhile, which indexing does not.
        return self.computed(np.ascontiguousarray(np.take(self._stored, vertices, axis=0)))

    @property
    def width(self) -> int:
        """Columns."""
        return int(self._stored.shape[1])

    @property
    def stored(self) -> NDArray[np.generic]:
        """The rows as they are stored, without a copy."""
        return self._stored

    def columns(self, cut: slice) -> "FeatureRows":
        """Some columns of all rows, copied, in the type that they are stored in unless they are normalized."""
        if not self.normalize:
            return FeatureRows(self.graph, self.dtype, False, np.ascontiguousarray(self._stored[:, cut]))
        count = len(self._stored)
        plain = FeatureRows(self.graph, self.dtype, normalize=False)
        ranges = [(at, min(at + _ROWS, count)) for at in range(0, count, _ROWS)]
        blocks = [normalized(plain.block(first, last))[:, cut].clone() for first, last in ranges]
        return FeatureRows(self.graph, self.dtype, False, torch.cat(blocks).numpy())

    @property
    def _stored(self) -> NDArray[np.generic]:
        if self.some is not None:
            return self.some
        if self.graph.x is None:
            raise BadInput(
                f"graph {self.graph.name!r} has no features: give it x, or learn rows with siafu.nn.LearntRows"
            )
        return self.graph.x

    def computed(self, stored: NDArray[np.generic]) -> Tensor:
        """Some rows as they are stored, in the type to compute in."""
        picked = torch.from_numpy(stored)
        found = picked.view(torch.bfloat16).float() if picked.dtype == torch.uint16 else picked
        return (normalized(found) if self.normalize else found).to(self.dtype)


def normalized(x: Tensor) -> Tensor:
    """Each row divided by the sum of its magnitudes; rows of zeros stay."""
    sums = x.abs().sum(dim=1, keepdim=True)
    return x / sums.masked_fill(sums == 0, 1.0)

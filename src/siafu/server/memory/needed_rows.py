"""NeededRows: the rows that a lane's last phase computes, and the share of a table's pages that they touch."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph

_PAGE = 4096  # bytes that the system gives at a time


@dataclass(frozen=True, slots=True, eq=False)
class NeededRows:
    """Rows whose loss or tally is wanted.

    ids:   of the whole graph, ascending
    share: of its vertices; edge_share: of its edges, those that lead to them
    """

    ids: NDArray[np.int64]
    vertices: int
    share: float
    edge_share: float
    _touched: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, splits: Iterable[Tensor]) -> "NeededRows":
        mask = np.zeros(graph.num_vertices, np.bool_)
        for ids in splits:
            mask[ids.numpy()] = True
        found = np.flatnonzero(mask)
        edges = int((graph.indptr[found + 1] - graph.indptr[found]).sum())
        vertices = graph.num_vertices
        return cls(found, vertices, len(found) / max(1, vertices), edges / max(1, graph.num_edges))

    @property
    def are_all(self) -> bool:
        """Whether every row is needed."""
        return len(self.ids) == self.vertices

    def touched(self, row_bytes: int) -> float:
        """The share of a table that is written, a page at a time, where only these rows are."""
        if self.are_all or row_bytes >= _PAGE:
            return self.share
        if row_bytes not in self._touched:
            pages = -(-self.vertices * row_bytes // _PAGE)
            found = np.count_nonzero(np.diff(self.ids * row_bytes // _PAGE, prepend=-1))
            self._touched[row_bytes] = found / max(1, pages)
        return self._touched[row_bytes]

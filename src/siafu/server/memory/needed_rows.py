"""NeededRows: the rows that a lane's last phase computes, and the share of a table's pages that they touch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph

_PAGE = 4096  # bytes that the system gives at a time
_AT_ONCE = 1 << 20  # rows that are looked at


@dataclass(frozen=True, slots=True, eq=False)
class NeededRows:
    """Rows whose loss or tally is wanted.

    mask:  [V] whether a row of all that are computed is one; None: a graph that is only planned has them anywhere
    count: of rows
    share: of its vertices; edge_share: of its edges, those that lead to them
    """

    mask: NDArray[np.bool_] | None
    count: int
    vertices: int
    share: float
    edge_share: float
    _touched: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, graph: Graph, splits: Iterable[Tensor], computed: NDArray[np.int64] | None = None
    ) -> "NeededRows":
        """computed: vertices whose rows other phases compute; None: all"""
        mask = np.zeros(graph.num_vertices, np.bool_)
        for ids in splits:
            mask[ids.numpy()] = True
        edges = sum(
            int(np.diff(graph.indptr[first : last + 1])[mask[first:last]].sum())
            for first, last in _ranges(graph.num_vertices)
        )
        vertices, count, all_edges = graph.num_vertices, int(np.count_nonzero(mask)), graph.num_edges
        if computed is not None:
            mask, vertices = mask[computed], len(computed)
            all_edges = int(np.diff(graph.indptr)[computed].sum())
        return cls(mask, count, vertices, count / max(1, vertices), edges / max(1, all_edges))

    @classmethod
    def planned(cls, vertices: int, share: float, edge_share: float) -> "NeededRows":
        """Those of a graph that is only planned."""
        return cls(None, round(share * vertices), vertices, share, edge_share)

    @property
    def are_all(self) -> bool:
        """Whether every row is needed."""
        return self.count == self.vertices

    def touched(self, row_bytes: int) -> float:
        """The share of a table that is written, a page at a time, where only these rows are."""
        if self.are_all or row_bytes >= _PAGE:
            return self.share
        if self.mask is None:  # a page is untouched if none of its rows is needed
            return float(1 - (1 - self.share) ** max(1.0, _PAGE / row_bytes))
        if row_bytes not in self._touched:
            pages, found, last_page = -(-self.vertices * row_bytes // _PAGE), 0, -1
            for first, last in _ranges(self.vertices):
                ids = first + np.flatnonzero(self.mask[first:last])
                if len(ids):
                    begun = ids * row_bytes // _PAGE
                    found += int(np.count_nonzero(np.diff(begun, prepend=last_page)))
                    last_page = int(begun[-1])
            self._touched[row_bytes] = found / max(1, pages)
        return self._touched[row_bytes]


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    """Rows, some at a time: numbers for every vertex would take more than the mask does."""
    for first in range(0, count, _AT_ONCE):
        yield first, min(first + _AT_ONCE, count)

"""Locality: how often a gather finds the rows it reads in a cache, sampled along the edges.

GNNAdvisor asks whether √AES, the mean distance of the ids that an edge joins, exceeds a bound; that says yes to graphs that
gain nothing, because a mean distance does not tell whether a row is read again while it is in the cache. Here the accesses
themselves are followed, for a while, at some places of the graph.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from siafu.base.hardware.caches import cache_bytes
from siafu.base.jit import kernel
from siafu.graph.csr import IntArray
from siafu.graph.graph import Graph

_WINDOWS = 6  # places of the graph
_PER_SLOT = 12  # accesses of a window for each row that a cache holds; the first half fills it
# Where 1 is a read that hits, with its share of the row that it is added to, 32 reads each: a read, what a miss of the core's own cache
# and of the shared one adds, and a row that is written. Least squares over 84 gathers; see docs/reordering.md.
_READ, _NEAR, _FAR, _ROW = 0.6, 0.7, 3.5, 5.0
SHARED_BY = (
    4  # one part in so many of the shared cache is left to the rows: other cores, sums and edges want it too
)


_BEST_NEAR = 0.25


@dataclass(frozen=True, slots=True)
class Locality:
    """Shares of a gather's reads that miss a cache.

    near: a core's own
    far:  the shared one: these come from memory
    rows: that are written, for each read: short rows cost as much as long ones
    """

    near: float
    far: float
    rows: float

    @property
    def cost(self) -> float:
        """Time of a read, where 1 stands for one that hits the core's cache and is added to a row of 32."""
        return _READ + _NEAR * self.near + _FAR * self.far + _ROW * self.rows

    @property
    def best(self) -> "Locality":
        """The least that an order comes to."""
        return Locality(_BEST_NEAR, 0.0, self.rows)


def locality(graph: Graph, row_bytes: int, order: IntArray | None = None) -> Locality:
    """Follow the gather of rows so long over the graph's in-edges, its vertices laid out in an order.

    order: [V] the vertex at each place; None: as they are
    """
    near = max(64, cache_bytes(2) // row_bytes)
    far = max(near, cache_bytes(3) // SHARED_BY // row_bytes)
    rows = graph.num_vertices / max(1, graph.num_edges)
    return Locality(_miss_rate(graph, near, order), _miss_rate(graph, far, order), rows)


def _miss_rate(graph: Graph, slots: int, order: IntArray | None) -> float:
    if graph.num_vertices <= slots or graph.num_edges == 0:
        return 0.0
    length = min(_PER_SLOT * slots, max(2, graph.num_edges // 2))
    return float(_follow(graph.indptr, graph.indices, order, slots, _WINDOWS, length))


@kernel
def _follow(indptr: Any, indices: Any, order: Any, slots: int, windows: int, length: int) -> float:
    """Miss rate of a cache of so many rows, each of which has one slot, in windows of so many edges."""
    rows = len(indptr) - 1
    holds = np.empty(slots, np.int64)
    missed, counted = 0, 0
    for w in range(windows):
        holds[:] = -1
        row, seen = rows * w // windows, 0
        while row < rows and seen < length:
            v = row if order is None else order[row]
            for e in range(indptr[v], indptr[v + 1]):
                u = np.int64(indices[e])
                slot = ((u * np.int64(2654435761)) >> 7) % slots
                if seen >= length // 2:
                    counted += 1
                    missed += holds[slot] != u
                holds[slot] = u
                seen += 1
            row += 1
    return missed / max(1, counted)

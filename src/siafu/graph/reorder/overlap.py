"""Overlap: how many neighbours the ends of an edge share, beyond chance, sampled. Orders gather what belongs together: communities.

Where they share none, as in grids and roads, their neighbours may be joined to each other: squares count as triangles do. What has numbers close
to each other is together already, and no order gains by it. An order takes far longer to find than this.
"""

from typing import Any, NamedTuple

import numpy as np

from siafu.base.jit import kernel
from siafu.graph.graph import Graph

_EDGES = 4096  # that are looked at
_NEIGHBOURS = 32  # of one end that are looked for among the other's
_PAIRS = 8  # of a neighbour of each end


class Overlap(NamedTuple):
    """How much belongs together, and how much of that does not stand together yet.

    shared: share of the neighbours of an edge's target that are its source's too, less what the degrees alone would give; or of the pairs
            of a neighbour of each end that are joined, where that is more
    apart:  the same, where only edges count whose ends are far apart
    far:    share of such edges
    """

    shared: float
    apart: float
    far: float


def overlap(graph: Graph, close: int = 0) -> Overlap:
    """Of a sample of the edges; vertices are far apart if their numbers differ by more than `close`."""
    if graph.num_edges == 0:
        return Overlap(0.0, 0.0, 0.0)
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, graph.num_edges, _EDGES))
    rows = np.searchsorted(graph.indptr, edges, side="right") - 1
    given = graph.indptr, graph.indices, edges, rows, close
    triangles = _overlap(*given)
    squares = _squares(*given, rng.integers(0, 1 << 30, (_EDGES, _PAIRS, 2)))
    far = np.mean(np.abs(graph.indices[edges].astype(np.int64) - rows) > close)
    shared, apart = (max(triangles[k], squares[k]) for k in (0, 1))
    return Overlap(float(shared), float(apart), float(far))


@kernel
def _overlap(indptr: Any, indices: Any, edges: Any, rows: Any, close: int) -> tuple[float, float]:
    """Shares of common neighbours beyond chance: of all edges, and of those whose ends are apart."""
    total, apart, looked = 0.0, 0.0, 0
    all_edges = len(indices)
    for k in range(len(edges)):
        row, source = rows[k], np.int64(indices[edges[k]])
        lo, hi = indptr[row], indptr[row + 1]
        low, high = indptr[source], indptr[source + 1]
        if row == source or high == low:
            continue
        step = max(1, (hi - lo) // _NEIGHBOURS)
        for e in range(lo + (edges[k] - lo) % step, hi, step):
            third = np.int64(indices[e])
            if third == source:
                continue
            if third == row:
                continue
            chance = (high - low) * (indptr[third + 1] - indptr[third]) / all_edges
            looked += 1
            shared = _joined(indices, low, high, third) - min(1.0, chance)
            total += shared
            apart += shared * (abs(row - source) > close)
    return total / max(1, looked), apart / max(1, looked)


@kernel
def _squares(indptr: Any, indices: Any, edges: Any, rows: Any, close: int, drawn: Any) -> tuple[float, float]:
    """Shares of the pairs of a neighbour of each end that are joined, beyond chance: of all edges, and of those whose ends are apart."""
    total, apart, looked = 0.0, 0.0, 0
    all_edges = len(indices)
    for k in range(len(edges)):
        row, source = rows[k], np.int64(indices[edges[k]])
        lo, hi = indptr[row], indptr[row + 1]
        low, high = indptr[source], indptr[source + 1]
        if row == source or high == low:
            continue
        for pair in range(drawn.shape[1]):
            a = np.int64(indices[lo + drawn[k, pair, 0] % (hi - lo)])
            b = np.int64(indices[low + drawn[k, pair, 1] % (high - low)])
            if a in (b, source, row) or b in (source, row):
                continue
            degree = indptr[b + 1] - indptr[b]
            looked += 1
            chance = degree * (indptr[a + 1] - indptr[a]) / all_edges
            shared = _joined(indices, indptr[b], indptr[b + 1], a) - min(1.0, chance)
            total += shared
            apart += shared * (abs(row - source) > close)
    return total / max(1, looked), apart / max(1, looked)


@kernel
def _joined(indices: Any, low: Any, high: Any, vertex: Any) -> Any:
    """Whether a vertex is among those of a row, which ascend."""
    a, b = low, high
    while a < b:
        middle = (a + b) // 2
        if indices[middle] < vertex:
            a = middle + 1
        else:
            b = middle
    return a < high and indices[a] == vertex

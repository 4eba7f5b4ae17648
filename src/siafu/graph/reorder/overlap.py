"""Overlap: how many neighbours the ends of an edge share, beyond chance, sampled. Orders gather what belongs together: communities.

A graph in which nothing belongs together gains nothing by another order, and an order takes far longer to find than this.
"""

from typing import Any

import numpy as np

from siafu.base.jit import kernel
from siafu.graph.graph import Graph

_EDGES = 4096  # that are looked at
_NEIGHBOURS = 32  # of one end that are looked for among the other's


def overlap(graph: Graph) -> float:
    """Share of the neighbours of an edge's target that are its source's too, less what the degrees alone would give."""
    if graph.num_edges == 0:
        return 0.0
    edges = np.sort(np.random.default_rng(0).integers(0, graph.num_edges, _EDGES))
    rows = np.searchsorted(graph.indptr, edges, side="right") - 1
    return float(_overlap(graph.indptr, graph.indices, edges, rows))


@kernel
def _overlap(indptr: Any, indices: Any, edges: Any, rows: Any) -> float:
    total, looked = 0.0, 0
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
            a, b = low, high
            while a < b:
                middle = (a + b) // 2
                if indices[middle] < third:
                    a = middle + 1
                else:
                    b = middle
            chance = (high - low) * (indptr[third + 1] - indptr[third]) / all_edges
            looked += 1
            total += (a < high and indices[a] == third) - min(1.0, chance)
    return total / max(1, looked)

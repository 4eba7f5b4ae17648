"""Intervals: contiguous ranges of vertices, balanced by vertices and edges together."""

import itertools

import numpy as np
from numpy.typing import NDArray

from siafu.graph.partition.cost import default_vertex_cost

_LEAST_WORK = 1 << 16  # vertices plus edges: a gather over fewer is over before the next task is found
_PER_THREAD = 4  # enough that a core which ends early finds more to do


def intervals(
    indptr: NDArray[np.int64], count: int, *, vertex_cost: int | None = None
) -> list[tuple[int, int]]:
    """`count` ranges (first, last) that follow each other and cover all rows of a CSR.

    No range costs more than the mean and the heaviest vertex together; none is empty unless there are more ranges
    than vertices.

    vertex_cost: how many edges one vertex weighs; None: the average degree
    """
    bounds = _bounds(indptr, count, vertex_cost)
    return [(int(first), int(last)) for first, last in itertools.pairwise(bounds)]


def auto_interval_count(vertices: int, edges: int, threads: int) -> int:
    """As many intervals as have at least 65,536 vertices and edges each, up to 4 a thread; at least 1."""
    worth_having = (vertices + edges) // _LEAST_WORK
    return max(1, min(worth_having, _PER_THREAD * threads, vertices))


def _bounds(indptr: NDArray[np.int64], count: int, vertex_cost: int | None) -> NDArray[np.int64]:
    vertices, edges = len(indptr) - 1, int(indptr[-1] - indptr[0])
    number = np.arange(count + 1)
    if count >= vertices:
        return np.minimum(number, vertices)
    each = default_vertex_cost(vertices, edges) if vertex_cost is None else vertex_cost
    before = (indptr - indptr[0]) + each * np.arange(vertices + 1)
    nearest = _nearest(before, before[-1] * (number / count))
    nearest[-1] = vertices  # trailing vertices that cost nothing belong to the last range
    # Each bound at least one past the bound before it, and as many vertices left as there are ranges to come.
    apart = np.maximum.accumulate(nearest - number) + number
    return np.minimum(apart, vertices - count + number)


def _nearest(ascending: NDArray[np.int64], targets: NDArray[np.float64]) -> NDArray[np.int64]:
    """Where in `ascending` the value nearest to each target is."""
    above = np.clip(np.searchsorted(ascending, targets), 1, len(ascending) - 1)
    below_is_nearer = targets - ascending[above - 1] < ascending[above] - targets
    return above - below_is_nearer

"""Intervals: contiguous ranges of vertices, balanced by vertices and edges together."""

import itertools

import numpy as np
from numpy.typing import NDArray

_LEAST_WORK = 1 << 16  # vertices plus edges: a gather over fewer is over before the next task is found
_NUMBERS_AN_EDGE = 16  # of a row that is multiplied
_EDGES_A_PART = 1 << 14  # of a gather: fewer cost more in visits of rows than an early start gains
_MOST_PARTS = 8
_PER_THREAD = 4  # enough that a core which ends early finds more to do


def default_vertex_cost(num_vertices: int, num_edges: int) -> int:
    """Cost of one vertex in edges: the average in-degree, so that all vertices together cost as much as all
    edges do, and neither can be far out of balance.
    """
    return max(1, round(num_edges / max(1, num_vertices)))


def vertex_costs(indptr: NDArray[np.int64], vertex_cost: int | None = None) -> NDArray[np.int64]:
    """[V] the cost of each vertex with its in-edges, in edges."""
    vertices, edges = len(indptr) - 1, int(indptr[-1] - indptr[0])
    each = default_vertex_cost(vertices, edges) if vertex_cost is None else vertex_cost
    return np.diff(indptr) + each


def intervals(
    indptr: NDArray[np.int64], count: int, *, vertex_cost: int | None = None
) -> list[tuple[int, int]]:
    """`count` ranges (first, last) that follow each other and cover all rows of a CSR.

    No range costs more than the mean and the heaviest vertex together; none is empty unless there are more ranges
    than vertices.

    vertex_cost: cost of one vertex in edges; None: the average degree
    """
    bounds = _bounds(indptr, count, vertex_cost)
    return [(int(first), int(last)) for first, last in itertools.pairwise(bounds)]


def auto_interval_count(vertices: int, edges: int, threads: int, *, numbers: float = 0.0) -> int:
    """Number of intervals: each has at least 65,536 vertices and edges, and there are at most 4 a thread.

    numbers: of a vertex's features that are not zero; 16 of them count as much as an edge
    """
    worth_having = int(vertices * (1 + numbers / _NUMBERS_AN_EDGE) + edges) // _LEAST_WORK
    return max(1, min(worth_having, _PER_THREAD * threads, vertices))


def gather_parts(edges: int) -> int:
    """Number of parts into which a gather over so many edges may be cut to begin with some of its rows; 0: it is not."""
    parts = min(_MOST_PARTS, edges // _EDGES_A_PART)
    return parts if parts > 1 else 0


def _bounds(indptr: NDArray[np.int64], count: int, vertex_cost: int | None) -> NDArray[np.int64]:
    vertices = len(indptr) - 1
    number = np.arange(count + 1)
    if count >= vertices:
        return np.minimum(number, vertices)
    before = np.concatenate([[0], np.cumsum(vertex_costs(indptr, vertex_cost))])
    nearest = _nearest(before, before[-1] * (number / count))
    nearest[-1] = vertices  # trailing vertices that cost nothing belong to the last range
    # Each bound at least one past the bound before it, and as many vertices left as there are ranges to come.
    apart = np.maximum.accumulate(nearest - number) + number
    return np.minimum(apart, vertices - count + number)


def _nearest(ascending: NDArray[np.int64], targets: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position of the value in `ascending` that is nearest to each target."""
    above = np.clip(np.searchsorted(ascending, targets), 1, len(ascending) - 1)
    below_is_nearer = targets - ascending[above - 1] < ascending[above] - targets
    return above - below_is_nearer

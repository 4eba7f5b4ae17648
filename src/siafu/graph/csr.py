"""Building and turning CSR arrays. Rows are destinations, columns are sources, ascending within a row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel

IntArray = NDArray[Any]  # int32 or int64
EdgeWeights = NDArray[np.float32] | None

MAX_INT32_VERTICES = 2**31 - 1

Allocate = Callable[[int, Any], NDArray[Any]]
"""Makes an array of so many items of a type."""


class Csr(NamedTuple):
    """Edges by row: in-edges by destination, or, transposed, out-edges by source.

    indptr:  [V + 1] int64; row i's edges are indptr[i] up to indptr[i + 1]
    indices: [E] int32 (int64 where V needs it); the other end of each edge, ascending within a row
    weights: [E] float32, or None where every edge weighs 1
    """

    indptr: NDArray[np.int64]
    indices: IntArray
    weights: EdgeWeights


def id_dtype(num_vertices: int) -> type[np.int32] | type[np.int64]:
    """The narrowest type that holds every vertex id."""
    return np.int32 if num_vertices <= MAX_INT32_VERTICES else np.int64


def from_coo(src: IntArray, dst: IntArray, weights: EdgeWeights, num_vertices: int) -> Csr:
    """Counting sort by destination, then each row by source; parallel edges keep the order they came in."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    _count(dst, indptr)
    indices = np.empty(len(src), id_dtype(num_vertices))
    sorted_weights = None if weights is None else np.empty(len(src), weights.dtype)
    _fill(src, dst, weights, indptr.copy(), indices, sorted_weights)
    return sorted_rows(Csr(indptr, indices, sorted_weights))


def sorted_rows(csr: Csr) -> Csr:
    """Sort every row by source. Rows that ascend already are returned as they are, not copied."""
    if first_bad_row(csr.indptr, csr.indices, 0, len(csr.indptr) - 1) < 0:
        return csr
    indices = csr.indices.copy()
    weights = None if csr.weights is None else csr.weights.copy()
    _sort_rows(csr.indptr, indices, weights)
    return Csr(csr.indptr, indices, weights)


def transpose(csr: Csr, allocate: Allocate = np.empty) -> Csr:
    """Edges by their other end: row j lists the rows that had j, ascending.

    allocate: makes the arrays that have a number for each edge
    """
    indptr = np.zeros_like(csr.indptr)
    _count(csr.indices, indptr)
    indices = allocate(len(csr.indices), csr.indices.dtype)
    weights = None if csr.weights is None else allocate(len(csr.weights), csr.weights.dtype)
    _turn(*csr, indptr.copy(), indices, weights)
    return Csr(indptr, indices, weights)


def transposed_numbers(csr: Csr) -> IntArray:
    """[E] for each edge of the transpose, its place in `csr`."""
    numbers = np.arange(len(csr.indices), dtype=id_dtype(len(csr.indices)))
    turned: Any = transpose(Csr(csr.indptr, csr.indices, numbers)).weights  # type: ignore[arg-type]
    return turned  # type: ignore[no-any-return]


def is_symmetric(csr: Csr) -> bool:
    """Whether the CSR equals its transpose, weights included. Takes V integers of memory, not E."""
    return bool(_mirrors(*csr, csr.indptr[:-1].copy()))


def merge_parallel(csr: Csr) -> Csr:
    """One edge for each (source, destination); weights of parallel edges add up."""
    indptr = np.zeros_like(csr.indptr)
    indices = np.empty_like(csr.indices)
    weights = None if csr.weights is None else np.empty_like(csr.weights)
    count = _merge(*csr, indptr, indices, weights)
    return Csr(indptr, indices[:count].copy(), None if weights is None else weights[:count].copy())


@kernel
def _count(rows: IntArray, indptr: IntArray) -> None:
    for e in range(len(rows)):
        indptr[rows[e] + 1] += 1
    for i in range(len(indptr) - 1):
        indptr[i + 1] += indptr[i]


@kernel
def _fill(
    src: IntArray, dst: IntArray, weights: EdgeWeights, cursor: IntArray, indices: IntArray, out: Any
) -> None:
    for e in range(len(src)):
        at = cursor[dst[e]]
        cursor[dst[e]] = at + 1
        indices[at] = src[e]
        if weights is not None:
            out[at] = weights[e]


@kernel
def first_bad_row(indptr: IntArray, indices: IntArray, first: int, last: int) -> int:
    """The first vertex whose row is not within `indices`, or is not ascending from 0 up and below V; else -1."""
    num_vertices = len(indptr) - 1
    for i in range(first, last):
        begin, end = indptr[i], indptr[i + 1]
        if begin < 0 or end < begin or end > len(indices):
            return i
        if begin == end:
            continue
        # Of a row that ascends the ends tell the rest; counting falls instead of leaving is what vectorises.
        falls = 0
        for e in range(begin + 1, end):
            falls += indices[e - 1] > indices[e]
        if falls > 0 or indices[begin] < 0 or indices[end - 1] >= num_vertices:
            return i
    return -1


@kernel
def _sort_rows(indptr: IntArray, indices: IntArray, weights: EdgeWeights) -> None:
    for i in range(len(indptr) - 1):
        lo, hi = indptr[i], indptr[i + 1]
        if weights is None:
            indices[lo:hi].sort()
        else:
            order = np.argsort(indices[lo:hi], kind="mergesort")
            indices[lo:hi] = indices[lo:hi][order]
            weights[lo:hi] = weights[lo:hi][order]


@kernel
def _turn(
    indptr: IntArray,
    indices: IntArray,
    weights: EdgeWeights,
    cursor: IntArray,
    out: IntArray,
    out_weights: Any,
) -> None:
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            at = cursor[indices[e]]
            cursor[indices[e]] = at + 1
            out[at] = i
            if weights is not None:
                out_weights[at] = weights[e]


@kernel
def _mirrors(indptr: IntArray, indices: IntArray, weights: EdgeWeights, cursor: IntArray) -> bool:
    """Walks rows in order: the next unread entry of row j must be i, whenever row i has j."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            at = cursor[j]
            if at >= indptr[j + 1] or indices[at] != i:
                return False
            if weights is not None and weights[at] != weights[e]:
                return False
            cursor[j] = at + 1
    return True


@kernel
def _merge(
    indptr: IntArray, indices: IntArray, weights: EdgeWeights, new_indptr: IntArray, kept: IntArray, sums: Any
) -> int:
    at = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if e == indptr[i] or indices[e] != indices[e - 1]:
                kept[at] = indices[e]
                if weights is not None:
                    sums[at] = weights[e]
                at += 1
            elif weights is not None:
                sums[at - 1] += weights[e]
        new_indptr[i + 1] = at
    return at


def self_loops(csr: Csr) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The vertex and the position of every edge from a vertex to itself, ascending."""
    count = count_self_loops(csr.indptr, csr.indices)
    vertex, position = np.empty(count, np.int64), np.empty(count, np.int64)
    _find_self_loops(csr.indptr, csr.indices, vertex, position)
    return vertex, position


@kernel
def _find_self_loops(indptr: IntArray, indices: IntArray, vertex: IntArray, position: IntArray) -> None:
    at = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] == i:
                vertex[at], position[at] = i, e
                at += 1


@kernel
def count_self_loops(indptr: IntArray, indices: IntArray) -> int:
    """Number of edges from a vertex to itself."""
    found = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            found += indices[e] == i
    return found

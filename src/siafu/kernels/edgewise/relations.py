"""Sums over edges of several types, each type with a matrix of its own, with nothing kept for an edge.

    out_i = Σ_r (Σ_j scale_ij rows_j) W_r        j over i's in-edges of type r

A row's edges stand by type, so that there is one product with a matrix for each of its types. The adjoint of the rows is
the same over out-edges, with the matrices turned; `relation_weights_range` has that of the matrices.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import fast_kernel, kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.tiles import ask_for, put, value_of

_SOON = 8  # edges between asking for a row and reading it


class TypedEdges(NamedTuple):
    """Edges by row, and by type within a row.

    indptr:  [rows + 1]
    indices: [E] the other end of each
    types:   [E]
    scales:  [E] a factor of each; None: 1
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    types: NDArray[np.int32]
    scales: NDArray[Any] | None


def typed_edges(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    numbers: NDArray[Any] | None,
    types: NDArray[np.int32],
    scales: NDArray[Any] | None,
    allocate: Callable[..., NDArray[Any]] = np.empty,
) -> TypedEdges:
    """Edges in the order in which gathers walk them; types, scales: by the numbers of edges, None: in their order."""
    order = np.empty(len(indices), np.int32 if len(indices) < 2**31 else np.int64)
    of_edges = types if numbers is None else types[numbers]
    _order_by_type(indptr, of_edges, order)

    def taken(values: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
        return np.take(values, places, out=allocate(len(order), values.dtype), mode="clip")

    scaled = None if scales is None else taken(scales, order if numbers is None else numbers[order])
    return TypedEdges(indptr, taken(indices, order), taken(of_edges, order), scaled)


class TypeRuns(NamedTuple):
    """Runs of edges of one row and one type, in the order of `TypedEdges`.

    rows:  [rows + 1] the first run of each row
    edges: [runs + 1] the first edge of each run
    types: [runs]
    """

    rows: NDArray[np.int64]
    edges: NDArray[np.int64]
    types: NDArray[np.int32]


def type_runs(edges: TypedEdges) -> TypeRuns:
    """The runs of all edges."""
    rows = np.zeros(len(edges.indptr), np.int64)
    _count_runs(edges.indptr, edges.types, rows)
    np.cumsum(rows, out=rows)
    found = TypeRuns(rows, np.empty(rows[-1] + 1, np.int64), np.empty(rows[-1], np.int32))
    _fill_runs(edges.indptr, edges.types, *found)
    return found


@kernel
def _count_runs(indptr: Any, types: Any, counts: Any) -> None:
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if e == indptr[i] or types[e] != types[e - 1]:
                counts[i + 1] += 1


@kernel
def _fill_runs(indptr: Any, types: Any, rows: Any, begins: Any, of_runs: Any) -> None:
    run = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if e == indptr[i] or types[e] != types[e - 1]:
                begins[run], of_runs[run] = e, types[e]
                run += 1
    begins[run] = indptr[-1]


def run_counts(indptr: NDArray[np.int64], indices: NDArray[Any], types: NDArray[np.int32]) -> tuple[int, int]:
    """Runs of the edges by row, and by their other end, before they are put in order: pairs of a vertex and a type."""
    relations = int(types.max(initial=-1)) + 1
    seen = np.full(relations, -1, np.int64)
    bits = np.zeros((len(indptr) - 1, -(-relations // 64)), np.uint64)
    return _pairs(indptr, indices, types, seen, bits)


@kernel
def _pairs(indptr: Any, indices: Any, types: Any, seen: Any, bits: Any) -> tuple[int, int]:
    inner, outer = 0, 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            kind = np.int64(types[e])
            if seen[kind] != i:
                seen[kind] = i
                inner += 1
            j, word, bit = indices[e], kind // 64, np.uint64(1) << np.uint64(kind % 64)
            if bits[j, word] & bit == 0:
                bits[j, word] |= bit
                outer += 1
    return inner, outer


@kernel
def _order_by_type(indptr: Any, types: Any, order: Any) -> None:
    for i in range(len(indptr) - 1):
        lo, hi = indptr[i], indptr[i + 1]
        order[lo:hi] = lo + np.argsort(types[lo:hi], kind="mergesort")


@kernel
def type_shares(indptr: Any, types: Any, counts: Any, out: Any) -> None:
    """out[e] = one over the number of edges of e's type in its row; counts: [types] of zeros, and again afterwards."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            counts[types[e]] += 1
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = 1.0 / counts[types[e]]
        for e in range(indptr[i], indptr[i + 1]):
            counts[types[e]] = 0


@fast_kernel
def _sum_of_type(
    indices: Any, types: Any, scales: Any, rows: Any, at: int, end: int, width: int, total: Any
) -> int:
    """total = the scaled sum of the rows of the edges from `at` on that are of one type; the position after them."""
    kind = types[at]
    for c in range(width):
        put(total, 0, c, 0.0)
    while at < end and types[at] == kind:
        j = indices[at]
        if at + _SOON < len(indices):
            ask_for(rows, indices[at + _SOON], width)
        scale = total.dtype.type(1)
        if scales is not None:
            scale = total.dtype.type(scales[at])
        for c in range(width):
            put(total, 0, c, value_of(total, 0, c) + scale * value_of(rows, j, c))
        at += 1
    return at


@fast_kernel
def _add_product(sums: Any, s: int, width: int, matrices: Any, top: Any, out: Any, i: int) -> None:
    """out[i] += sums[s] times the matrix whose first row is `top`."""
    for k in range(width):
        factor = value_of(sums, s, k)
        for c in range(out.shape[1]):
            put(out, i, c, value_of(out, i, c) + factor * value_of(matrices, top + k, c))


@fast_kernel
def relation_range(
    indptr: Any,
    indices: Any,
    types: Any,
    scales: Any,
    rows: Any,
    width: int,
    matrices: Any,
    out: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """Gather for the rows from `first` up to `last`, or those that picked[first:last] names, in this thread.

    matrices: [types · width, columns of out], one below the other
    """
    total = np.zeros(width, out.dtype)
    for p in range(first, last):
        i = row_at(picked, p)
        out[i, :] = 0
        at, end = indptr[i], indptr[i + 1]
        while at < end:
            top = np.int64(types[at]) * width
            at = _sum_of_type(indices, types, scales, rows, at, end, width, total)
            _add_product(total, 0, width, matrices, top, out, i)


@fast_kernel
def relation_weights_range(
    indptr: Any,
    indices: Any,
    types: Any,
    scales: Any,
    rows: Any,
    width: int,
    gradient: Any,
    of_matrices: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """Add the gradients of the matrices that some rows give; gradient: of what was gathered, by row."""
    total = np.zeros(width, of_matrices.dtype)
    for p in range(first, last):
        i = row_at(picked, p)
        at, end = indptr[i], indptr[i + 1]
        while at < end:
            top = np.int64(types[at]) * width
            at = _sum_of_type(indices, types, scales, rows, at, end, width, total)
            _add_outer(total, 0, width, gradient, i, of_matrices, top)


@fast_kernel
def _add_outer(sums: Any, s: int, width: int, gradient: Any, i: int, of_matrices: Any, top: Any) -> None:
    """The rows of `of_matrices` from `top` on += sums[s] turned, times gradient[i]."""
    for k in range(width):
        factor = value_of(sums, s, k)
        for c in range(of_matrices.shape[1]):
            more = factor * value_of(gradient, i, c)
            put(of_matrices, top + k, c, value_of(of_matrices, top + k, c) + more)


@fast_kernel
def relation_products_range(
    runs: Any,
    types: Any,
    sums: Any,
    width: int,
    matrices: Any,
    out: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`relation_range` of sums that are there: those of a row's runs, one after the other.

    runs, types: as `TypeRuns` has them; sums: [runs, width]
    """
    for p in range(first, last):
        i = row_at(picked, p)
        out[i, :] = 0
        for run in range(runs[i], runs[i + 1]):
            _add_product(sums, run, width, matrices, np.int64(types[run]) * width, out, i)


@fast_kernel
def relation_outer_range(
    runs: Any,
    types: Any,
    sums: Any,
    width: int,
    gradient: Any,
    of_matrices: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`relation_weights_range` of sums that are there."""
    for p in range(first, last):
        i = row_at(picked, p)
        for run in range(runs[i], runs[i + 1]):
            _add_outer(sums, run, width, gradient, i, of_matrices, np.int64(types[run]) * width)

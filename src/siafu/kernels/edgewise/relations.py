"""Sums over edges of several types, each type with a matrix of its own, with nothing kept for an edge.

    out_i = Σ_r (Σ_j scale_ij rows_j) W_r        j over i's in-edges of type r

A row's edges stand by type, so that there is one product with a matrix for each of its types. The adjoint of the rows is
the same over out-edges, with the matrices turned; `relation_weights_range` has that of the matrices.
"""

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
) -> TypedEdges:
    """Edges in the order in which gathers walk them; types, scales: by the numbers of edges, None: in their order."""
    order = np.empty(len(indices), np.int32 if len(indices) < 2**31 else np.int64)
    of_edges = types if numbers is None else types[numbers]
    _order_by_type(indptr, of_edges, order)
    scaled = None if scales is None else scales[order if numbers is None else numbers[order]]
    return TypedEdges(indptr, indices[order], of_edges[order], scaled)


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
    columns = out.shape[1]
    for p in range(first, last):
        i = row_at(picked, p)
        out[i, :] = 0
        at, end = indptr[i], indptr[i + 1]
        while at < end:
            top = np.int64(types[at]) * width
            at = _sum_of_type(indices, types, scales, rows, at, end, width, total)
            for k in range(width):
                factor = value_of(total, 0, k)
                for c in range(columns):
                    put(out, i, c, value_of(out, i, c) + factor * value_of(matrices, top + k, c))


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
    columns = of_matrices.shape[1]
    for p in range(first, last):
        i = row_at(picked, p)
        at, end = indptr[i], indptr[i + 1]
        while at < end:
            top = np.int64(types[at]) * width
            at = _sum_of_type(indices, types, scales, rows, at, end, width, total)
            for k in range(width):
                factor = value_of(total, 0, k)
                for c in range(columns):
                    more = factor * value_of(gradient, i, c)
                    put(of_matrices, top + k, c, value_of(of_matrices, top + k, c) + more)

"""The max gather and its adjoint. Equal maxima share the gradient evenly, as in PyTorch's `amax`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.chunks import over_rows, row_at
from siafu.kernels.llvm.emit import MAX_TILE
from siafu.kernels.llvm.tiles import add_where_equal, maximise
from siafu.kernels.rows import Table, empty_table
from siafu.kernels.sums import sum_dtype


def gather_max(indptr: NDArray[np.int64], indices: NDArray[Any], rows: Table) -> tuple[Table, Table]:
    """The greatest value of each column over a vertex's in-edges, and how many edges reach it.

    A vertex without edges gets 0, reached by none.
    """
    out = empty_table(len(indptr) - 1, rows.shape[1], sum_dtype(rows))
    ties = empty_table(len(indptr) - 1, rows.shape[1], sum_dtype(rows))
    over_rows(
        indptr,
        rows.shape[1],
        lambda first, last: max_range(indptr, indices, rows, out, ties, None, first, last),
    )
    return out, ties


def gather_max_adjoint(
    indptr: NDArray[np.int64], indices: NDArray[Any], rows: Table, maxima: Table, shares: Table
) -> Table:
    """The gradient of `rows`, over out-edges (indptr, indices by source).

    rows:   what the forward gather read; maxima: what it gave
    shares: the gradient of maxima, divided by the ties
    """
    out = empty_table(len(indptr) - 1, rows.shape[1], sum_dtype(rows))
    over_rows(
        indptr,
        2 * rows.shape[1],
        lambda first, last: max_adjoint_range(indptr, indices, rows, maxima, shares, out, first, last),
    )
    return out


@kernel
def max_range(
    indptr: Any, indices: Any, rows: Any, out: Any, ties: Any, picked: Any, first: int, last: int
) -> None:
    """`gather_max` for the rows from `first` up to `last`, or those that picked[first:last] names, in this thread."""
    columns = out.shape[1]
    for k in range(first, last):
        i = row_at(picked, k)
        lo, hi = indptr[i], indptr[i + 1]
        start = -np.inf if lo < hi else 0.0
        for c in range(columns):
            out[i, c] = start
            ties[i, c] = 0
        for c in range(0, columns, MAX_TILE // 2):
            maximise(out, ties, i, rows, indices, lo, hi, c, min(columns - c, MAX_TILE // 2))


@kernel
def max_adjoint_range(
    indptr: Any, indices: Any, rows: Any, maxima: Any, shares: Any, out: Any, first: int, last: int
) -> None:
    """`gather_max_adjoint` for the rows from `first` up to `last`, in this thread."""
    columns = out.shape[1]
    for j in range(first, last):
        for c in range(columns):
            out[j, c] = 0
        for c in range(0, columns, MAX_TILE // 2):
            tile = min(columns - c, MAX_TILE // 2)
            add_where_equal(out, j, rows, maxima, shares, indices, indptr[j], indptr[j + 1], c, tile)


@kernel
def max_gradient_range(
    gradient: Any, out: Any, ties: Any, maxima: Any, shares: Any, picked: Any, first: int
) -> None:
    """Rows that the adjoint reads, from `first` on or of those that picked[first:] names, in this thread.

    maxima, shares: get what was gathered, and the gradient of it divided by the ties
    """
    for k in range(len(gradient)):
        i = row_at(picked, first + k)
        for c in range(gradient.shape[1]):
            maxima[i, c] = out[i, c]
            shares[i, c] = gradient[k, c] / max(ties[i, c], 1)

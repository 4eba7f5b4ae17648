"""The sum gather: out = scale · (A + self-loops) · rows. Mean and GCN's normalisation are row scalings of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.jit import kernel
from siafu.kernels.chunks import over_rows
from siafu.kernels.emit import MAX_TILE
from siafu.kernels.rows import Table, empty_table
from siafu.kernels.tiles import accumulate, value_of

_ONE_HEAD = 1 << 30  # vectors: more than any row has, so that each has the edge's one weight


def gather_sum(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    rows: Table,
    *,
    self_weight: NDArray[Any] | None = None,
    scale: NDArray[Any] | None = None,
    out: Table | None = None,
) -> Table:
    """Row i of the result is scale[i] · (self_weight[i] · rows[i] + Σ weights[e] · rows[indices[e]]) over i's edges.

    weights:     [E]; None: every edge weighs 1
    self_weight: [V]; with it each vertex has exactly one self-loop of that weight, and stored ones are left out;
                 None: the stored edges, as they are
    scale:       [V]; None: 1
    out:         where the result goes; None: a new table
    The result is float32 for float32 and bfloat16 rows, float64 for float64.
    """
    if out is None:
        out = empty_table(len(indptr) - 1, rows.shape[1], sum_dtype(rows))
    over_rows(
        indptr,
        rows.shape[1],
        lambda first, last: sum_range(indptr, indices, weights, rows, self_weight, scale, out, first, last),
    )
    return out


def sum_dtype(rows: Table) -> type[np.float32] | type[np.float64]:
    """The type that rows of this storage are summed in."""
    return np.float64 if rows.dtype == np.float64 else np.float32


@kernel
def sum_range(
    indptr: Any,
    indices: Any,
    weights: Any,
    rows: Any,
    self_weight: Any,
    scale: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """`gather_sum` for the rows from `first` up to `last`, in this thread, into out[first:last]."""
    columns = out.shape[1]
    for i in range(first, last):
        lo, hi = indptr[i], indptr[i + 1]
        skip_lo, skip_hi = -1, -1
        if self_weight is None:
            for c in range(columns):
                out[i, c] = 0
        else:
            for c in range(columns):
                out[i, c] = self_weight[i] * value_of(rows, i, c)
            skip_lo, skip_hi = own_edges(indices, lo, hi, i)
        for c in range(0, columns, MAX_TILE):
            tile = min(columns - c, MAX_TILE)
            accumulate(out, i, rows, indices, lo, skip_lo, skip_hi, hi, c, tile, weights, 0, _ONE_HEAD)
        if scale is not None:
            for c in range(columns):
                out[i, c] *= scale[i]


@kernel
def own_edges(indices: Any, lo: int, hi: int, vertex: int) -> tuple[int, int]:
    """Where `vertex` stands among its own sources, which ascend; (-1, -1) if it does not."""
    left, right = lo, hi
    while left < right:
        middle = (left + right) // 2
        if indices[middle] < vertex:
            left = middle + 1
        else:
            right = middle
    end = left
    while end < hi and indices[end] == vertex:
        end += 1
    if left == end:
        return -1, -1
    return left, end

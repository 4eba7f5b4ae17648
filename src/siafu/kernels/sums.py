"""The sum gather: out = scale · (A + self-loops) · rows. Mean and GCN's normalisation are row scalings of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.blocking import Blocks
from siafu.kernels.chunks import over_rows, row_at
from siafu.kernels.hubs import Hub, HubEdges, add_groups, cut_hubs, hub_rows, over_groups, without_hubs
from siafu.kernels.llvm.emit import MAX_TILE
from siafu.kernels.llvm.tiles import accumulate_listed, accumulate_near, accumulate_onward, ask_for, value_of
from siafu.kernels.rows import Table, empty_table

ONE_HEAD = 1 << 30  # vectors: more than any row has, so that each has the edge's one weight
_SOON = 8  # rows: how early a visit's sums are asked for


def gather_sum(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    rows: Table,
    *,
    self_weight: NDArray[Any] | None = None,
    scale: NDArray[Any] | None = None,
    blocks: Blocks | None = None,
    out: Table | None = None,
) -> Table:
    """Row i of the result is scale[i] · (self_weight[i] · rows[i] + Σ weights[e] · rows[indices[e]]) over i's edges.

    weights:     [E]; None: every edge weighs 1
    self_weight: [V]; with it each vertex has exactly one self-loop of that weight, and stored ones are left out;
                 None: the stored edges, as they are
    scale:       [V]; None: 1
    blocks:      the same edges block by block, with their weights, and without self-loops if self_weight is given;
                 the result is the same to the last bit; None: row by row. Edges of hubs are not among them
    out:         where the result goes; None: a new table
    The result is float32 for float32 and bfloat16 rows, float64 for float64.
    """
    result = empty_table(len(indptr) - 1, rows.shape[1], sum_dtype(rows)) if out is None else out
    long_rows = hub_rows(indptr)
    hubs = cut_hubs(long_rows, (indptr, indices), self_loops=self_weight is None)
    apart = HubEdges(hubs, long_rows, indices, weights)

    def work(first: int, last: int) -> None:
        if blocks is not None:
            sum_blocks_range(*blocks, rows, self_weight, scale, result, None, first, last)
            return
        for low, high in apart.between(first, last):
            sum_range(indptr, indices, weights, rows, self_weight, scale, result, None, low, high)

    over_rows(without_hubs(indptr, long_rows), rows.shape[1], work)
    for hub in hubs:
        sum_hub(hub, indices, weights, rows, self_weight, scale, result)
    return result


def sum_hub(
    hub: Hub,
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    rows: Table,
    self_weight: NDArray[Any] | None,
    scale: NDArray[Any] | None,
    out: Table,
) -> None:
    """`gather_sum` for one hub, into its row of `out`; threads share it where that pays."""
    sums = empty_table(len(hub.indptr) - 1, out.shape[1], out.dtype)

    def work(first: int, last: int) -> None:
        sum_range(hub.indptr, indices, weights, rows, None, None, sums, hub.groups, first, last)

    over_groups(hub, len(hub.groups), work)
    start_sum(rows, self_weight, out, hub.row)
    add_groups(hub.groups, sums, out, hub.row)
    finish_sum(scale, out, hub.row)


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
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`gather_sum` for the rows from `first` up to `last`, in this thread, into out[first:last].

    picked: row numbers; with it the rows are those that picked[first:last] names; None: all
    """
    columns = out.shape[1]
    for k in range(first, last):
        i = row_at(picked, k)
        lo, hi = indptr[i], indptr[i + 1]
        end = indptr[last] if picked is None else hi  # edges of the rows that follow are asked for early
        skip_lo, skip_hi = -1, -1
        if self_weight is not None:
            skip_lo, skip_hi = _own_edges(indices, lo, hi, i)
        start_sum(rows, self_weight, out, i)
        for c in range(0, columns, MAX_TILE):
            tile = min(columns - c, MAX_TILE)
            accumulate_onward(out, i, rows, indices, lo, skip_lo, skip_hi, hi, end, c, tile, weights)
        finish_sum(scale, out, i)


@kernel
def sum_blocks_range(
    size: int,
    base: Any,
    starts: Any,
    sources: Any,
    weights: Any,
    rows: Any,
    self_weight: Any,
    scale: Any,
    out: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`sum_range`, one block of sources after the other (`Blocks`): their rows stay in the core's own cache.

    Rows of hubs get what their self-loops give; their edges are in no block.
    """
    columns = out.shape[1]
    for k in range(first, last):
        start_sum(rows, self_weight, out, row_at(picked, k))
    for b in range(len(base)):
        near, begin = rows[b * size : (b + 1) * size], starts[b]
        for k in range(first, last):
            lo, hi = base[b] + begin[k], base[b] + begin[k + 1]
            if k + _SOON < last:
                ask_for(out, row_at(picked, k + _SOON), columns)
            if lo == hi:
                continue
            for c in range(0, columns, MAX_TILE):
                tile = min(columns - c, MAX_TILE)
                accumulate_near(
                    out, row_at(picked, k), near, sources, lo, -1, -1, hi, c, tile, weights, 0, ONE_HEAD
                )
    for k in range(first, last):
        finish_sum(scale, out, row_at(picked, k))


@kernel
def sum_far_blocks_range(
    size: int,
    base: Any,
    starts: Any,
    sources: Any,
    weights: Any,
    rows: Any,
    self_weight: Any,
    scale: Any,
    out: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`sum_blocks_range` for blocks that fit the cache that cores share: rows of the visits to come are asked for early."""
    columns = out.shape[1]
    for k in range(first, last):
        start_sum(rows, self_weight, out, row_at(picked, k))
    for b in range(len(base)):
        near, begin = rows[b * size : (b + 1) * size], starts[b]
        end = base[b] + begin[last]
        for k in range(first, last):
            lo, hi = base[b] + begin[k], base[b] + begin[k + 1]
            if k + _SOON < last:
                ask_for(out, row_at(picked, k + _SOON), columns)
            if lo == hi:
                continue
            for c in range(0, columns, MAX_TILE):
                tile = min(columns - c, MAX_TILE)
                accumulate_listed(out, row_at(picked, k), near, sources, lo, hi, end, c, tile, weights)
    for k in range(first, last):
        finish_sum(scale, out, row_at(picked, k))


@kernel
def start_sum(rows: Any, self_weight: Any, out: Any, i: int) -> None:
    """Row i before its edges: zero, or what its self-loop gives."""
    for c in range(out.shape[1]):
        if self_weight is None:
            out[i, c] = 0
        else:
            out[i, c] = self_weight[i] * value_of(rows, i, c)


@kernel
def finish_sum(scale: Any, out: Any, i: int) -> None:
    """Row i times its factor."""
    if scale is not None:
        for c in range(out.shape[1]):
            out[i, c] *= scale[i]


@kernel
def _own_edges(indices: Any, lo: int, hi: int, vertex: int) -> tuple[int, int]:
    """Range of `vertex` among its own sources, which ascend; (-1, -1): it is not among them."""
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

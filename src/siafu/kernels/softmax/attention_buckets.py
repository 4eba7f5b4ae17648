"""Attention as the ordered sum of buckets (`siafu.kernels.buckets`), bit for bit equal to one walk.

One walk takes a row's edges in blocks of 64: the greatest logit, and how sums are rounded, depend on where blocks begin. A block whose
edges come from two buckets is begun by the first and completed by the second: its weights are made of all its logits
both times, so source logits of all vertices must be in memory; rows need not be. Self-loops stand first, so `own_first` adds them before
the first bucket, of the targets' own rows.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.jit import kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.emit import LANES, MAX_TILE
from siafu.kernels.llvm.tiles import accumulate, ask_for
from siafu.kernels.softmax.attention import (
    EDGE_BLOCK,
    by_head,
    keep_factor,
    next_edges,
    scale_head,
)
from siafu.kernels.softmax.blocks import soften, weigh


class AttentionState(NamedTuple):
    """Where a gather of some rows stands between two buckets.

    at:      [rows] the first edge of each row's present block
    done:    [rows] how many of the block's edges have been added; -1: all of the row's
    highest: [rows, heads] the greatest logit so far
    total:   [rows, heads] the sum of weights so far
    """

    at: NDArray[np.int64]
    done: NDArray[np.int32]
    highest: NDArray[Any]
    total: NDArray[Any]

    @classmethod
    def first(
        cls,
        indptr: NDArray[np.int64],
        heads: int,
        dtype: DTypeLike,
        needed: NDArray[np.int64] | None = None,
    ) -> "AttentionState":
        """Before the first bucket; needed: rows that are gathered for; None: all."""
        rows = len(indptr) - 1
        return cls(
            indptr[:-1].copy(),
            _to_do(rows, needed),
            np.full((rows, heads), -np.inf, dtype),
            np.zeros((rows, heads), dtype),
        )


def _to_do(rows: int, needed: NDArray[np.int64] | None) -> NDArray[np.int32]:
    if needed is None:
        return np.zeros(rows, np.int32)
    done = np.full(rows, -1, np.int32)
    done[needed] = 0
    return done


@kernel
def attend_bucket(
    indptr: Any,
    indices: Any,
    rows: Any,
    low: int,
    high: int,
    own: int,
    own_first: bool,
    source: Any,
    target: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    at: Any,
    done: Any,
    highest: Any,
    total: Any,
    out: Any,
    positive: Any,
    positive_share: Any,
    first: int,
    last: int,
) -> None:
    """Add the rows of the sources from `low` up to `high` to the targets first:last, in this thread.

    rows:      of those sources, the first is that of `low`
    own:       number of the first target among the sources
    own_first: add self-loops alone: rows are the targets' own, `low` is `own`; call it so once, before all buckets
    source:    [V, heads] logits of all sources; target: [targets, heads]
    at, done, highest, total: `AttentionState`
    out, positive, positive_share: zero before the first call; see `Attended`
    """
    kind = out.dtype.type
    near = np.empty(EDGE_BLOCK, np.int64)
    logits = np.empty(heads * EDGE_BLOCK, out.dtype)
    weights = np.empty(heads * EDGE_BLOCK, out.dtype)
    above = np.empty(heads * EDGE_BLOCK, out.dtype)
    per_head = head_columns // LANES
    for i in range(first, last):
        while done[i] >= 0:
            begin = done[i]
            after, count, stop = _block_within(
                indptr, indices, i, own, self_loops, own_first, high, at, begin, near
            )
            if count == 0:
                done[i] = -1
            if stop <= begin:
                break
            by_head(source, near, count, heads, 0, -np.inf, logits)
            vectors = -(-count // LANES)
            for k in range(begin, stop):
                ask_for(rows, near[k] - low, heads * head_columns)
            for h in range(heads):
                best = soften(logits, h * EDGE_BLOCK, vectors, target[i, h], kind(slope))
                if begin == 0 and best > highest[i, h]:
                    shrink = kind(math.exp(highest[i, h] - best))
                    highest[i, h] = best
                    total[i, h] *= shrink
                    scale_head(out, i, h, head_columns, shrink)
                    if positive is not None:
                        positive_share[i, h] *= shrink
                        scale_head(positive, i, h, head_columns, shrink)
                shift = highest[i, h] if highest[i, h] > -np.inf else kind(0)
                whole, part = weigh(logits, weights, above, h * EDGE_BLOCK, vectors, shift)
                if begin == 0:
                    total[i, h] += whole
                    if positive is not None:
                        positive_share[i, h] += part
            if dropout > 0:
                for h in range(heads):
                    for k in range(begin, stop):
                        keep = kind(keep_factor(seed, row_at(ids, own + i), row_at(ids, near[k]), h, dropout))
                        weights[h * EDGE_BLOCK + k] *= keep
                        above[h * EDGE_BLOCK + k] *= keep
            for k in range(begin, stop):
                near[k] -= low
            for c in range(0, out.shape[1], MAX_TILE):
                tile = min(out.shape[1] - c, MAX_TILE)
                accumulate(out, i, rows, near, begin, -1, -1, stop, c, tile, weights, EDGE_BLOCK, per_head)
                if positive is not None:
                    accumulate(
                        positive, i, rows, near, begin, -1, -1, stop, c, tile, above, EDGE_BLOCK, per_head
                    )
            _step_on(i, after, count, stop, at, done)


@kernel
def finish_attention(
    heads: int,
    head_columns: int,
    highest: Any,
    total: Any,
    out: Any,
    log_sum: Any,
    positive: Any,
    positive_share: Any,
    first: int,
    last: int,
) -> None:
    """Divide by the sums of weights, after the last bucket; log_sum: gets their logarithms."""
    kind = out.dtype.type
    for i in range(first, last):
        for h in range(heads):
            share = kind(0) if total[i, h] == 0 else kind(1) / total[i, h]
            log_sum[i, h] = kind(0) if total[i, h] == 0 else highest[i, h] + math.log(total[i, h])
            scale_head(out, i, h, head_columns, share)
            if positive is not None:
                positive_share[i, h] *= share
                scale_head(positive, i, h, head_columns, share)


@kernel
def _block_within(
    indptr: Any,
    indices: Any,
    row: int,
    own: int,
    self_loops: bool,
    own_first: bool,
    high: int,
    at: Any,
    begin: int,
    near: Any,
) -> tuple[int, int, int]:
    """A row's present block: the edge after it, how many edges it has, and up to which of them the bucket goes."""
    add_self = self_loops and at[row] == indptr[row]
    after, count = next_edges(indices, at[row], indptr[row + 1], own + row, self_loops, near, add_self)
    stop = begin
    if own_first:
        if add_self:
            stop = 1
    else:
        while stop < count and near[stop] < high:
            stop += 1
    return after, count, stop


@kernel
def _step_on(row: int, after: int, count: int, stop: int, at: Any, done: Any) -> None:
    """A block is complete, or waits for the next bucket."""
    if stop < count:
        done[row] = stop
        return
    at[row] = after
    done[row] = 0 if count == EDGE_BLOCK else -1

"""The adjoint of attention as the ordered sum of buckets (`siafu.kernels.buckets`), bit for bit equal to one walk.

One walk takes a row's edges in blocks of 64, which decide how sums are rounded. A block whose edges come from two buckets is begun
by the first and completed by the second; a bucket reads its own edges alone. Self-loops stand first, as in `attention_buckets`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.jit import kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.emit import LANES, MAX_TILE
from siafu.kernels.llvm.tiles import accumulate, ask_early, ask_for
from siafu.kernels.softmax.attention import EDGE_BLOCK, keep_factor, kept_factor
from siafu.kernels.softmax.blocks import match_rows, sum_lanes, weigh_back_part
from siafu.kernels.softmax.head_vectors import (
    attend_adjoint_block,
    drop_threshold,
    edge_key,
    end_adjoint_block,
    working_space,
)

_EDGES_LISTED = 1024
_ROWS_LISTED = 1024
_EDGES_AHEAD = 64
"""Edges whose rows are asked for before they are added."""


class AdjointState(NamedTuple):
    """Where an adjoint of some rows stands between two buckets.

    at:    [rows] the next edge of each row
    done:  [rows] how many edges of the row's present block have been added; -1: all of the row's
    lanes: [rows, heads · LANES] partial sums of a block that is begun
    """

    at: NDArray[np.int64]
    done: NDArray[np.int32]
    lanes: NDArray[Any]

    @classmethod
    def first(cls, indptr: NDArray[np.int64], heads: int, dtype: DTypeLike) -> "AdjointState":
        """Before the first bucket."""
        rows = len(indptr) - 1
        return cls(indptr[:-1].copy(), np.zeros(rows, np.int32), np.zeros((rows, heads * LANES), dtype))


@kernel
def attend_adjoint_bucket(
    indptr: Any,
    indices: Any,
    gradient: Any,
    targets: Any,
    low: int,
    high: int,
    own: int,
    own_first: bool,
    rows: Any,
    source: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    at: Any,
    done: Any,
    lanes: Any,
    out: Any,
    of_source: Any,
    first: int,
    last: int,
) -> None:
    """Add what comes back along out-edges to the vertices from `low` up to `high`; rows first:last, in this thread.

    gradient, targets: of those vertices, as in `gather_attention_adjoint`
    rows, source:      of the rows that are gathered for
    own, own_first:    as in `attend_bucket`, where gradient and targets are the rows' own
    at, done, lanes:   `AdjointState`
    Edges of the bucket are listed first, a few hundred at a time, so that their rows are on the way before they are added.
    out, of_source:    zero before the first call
    """
    kind = out.dtype.type
    listed, ends = np.empty(EDGE_BLOCK + _EDGES_LISTED, np.int64), np.empty(_ROWS_LISTED, np.int64)
    space = np.empty((5, heads * EDGE_BLOCK), out.dtype)
    per_head = head_columns // LANES
    _, along, _, _, _, pulls = working_space(EDGE_BLOCK, out)
    keys = np.empty(EDGE_BLOCK, np.uint64)
    threshold, scale = drop_threshold(dropout), kind(kept_factor(dropout))
    start = first
    while start < last:
        until, rest = _list_edges(
            indptr, indices, start, last, own, self_loops, own_first, high, at, done, listed, ends
        )
        edge, asked = EDGE_BLOCK, EDGE_BLOCK
        for j in range(start, until):
            end = ends[j - start]
            while edge < end:
                begin = done[j]
                stop = min(EDGE_BLOCK, begin + end - edge)
                near = listed[edge - begin :]
                edge += stop - begin
                onward = min(edge + _EDGES_AHEAD, rest)
                for k in range(asked, onward):
                    ask_early(gradient, listed[k] - low, heads * head_columns)
                    ask_early(targets, listed[k] - low, 3 * heads)
                asked = max(asked, onward)
                # fmt: off
                if heads != LANES:
                    _add_by_head(
                        near, begin, stop, low, own, j, gradient, targets, rows, source, heads, head_columns,
                        slope, dropout, seed, ids, lanes, out, space,
                    )
                else:
                    if dropout > 0:
                        for k in range(begin, stop):
                            keys[k] = edge_key(seed, row_at(ids, near[k]), row_at(ids, own + j))
                    for k in range(begin, stop):
                        near[k] -= low
                    if dropout > 0:
                        attend_adjoint_block(
                            rows, source, targets, gradient, kind(slope), keys, threshold, scale, per_head,
                            out, j, near, begin, stop, along, lanes[j],
                        )
                    else:
                        attend_adjoint_block(
                            rows, source, targets, gradient, kind(slope), None, threshold, scale, per_head,
                            out, j, near, begin, stop, along, lanes[j],
                        )
                # fmt: on
                done[j] = stop
                if stop == EDGE_BLOCK:
                    _end_block(lanes, heads, pulls, of_source, j)
                    done[j] = 0
            if done[j] >= 0 and at[j] == indptr[j + 1]:
                if done[j] > 0:
                    _end_block(lanes, heads, pulls, of_source, j)
                done[j] = -1
        # A full list may end within a row.
        start = until - 1 if rest == len(listed) else until


@kernel
def _list_edges(
    indptr: Any,
    indices: Any,
    first: int,
    last: int,
    own: int,
    self_loops: bool,
    own_first: bool,
    high: int,
    at: Any,
    done: Any,
    listed: Any,
    ends: Any,
) -> tuple[int, int]:
    """List edges of a bucket, from row `first` on: the row after those listed, and where the list ends.

    listed: to be filled from EDGE_BLOCK on; it is full if another list must begin with the last row of this one
    ends:   to be filled: where each row's edges end in it
    """
    place, row = EDGE_BLOCK, first
    while row < last and row < first + len(ends) and place < len(listed):
        if done[row] >= 0:
            if not own_first:
                edge, end = at[row], indptr[row + 1]
                while edge < end and indices[edge] < high and place < len(listed):
                    listed[place] = indices[edge]
                    place += not (self_loops and indices[edge] == own + row)
                    edge += 1
                at[row] = edge
            elif self_loops and done[row] == 0:
                listed[place] = own + row
                place += 1
        ends[row - first] = place
        row += 1
    return row, place


@kernel
def _end_block(lanes: Any, heads: int, pulls: Any, of_source: Any, j: int) -> None:
    """A block of row j is complete: what it pulls at the row's logits is added up as one walk does."""
    if heads == LANES:
        end_adjoint_block(lanes[j], pulls, of_source, j)
        return
    for h in range(heads):
        of_source[j, h] += sum_lanes(lanes, j, h * LANES)
    lanes[j, :] = 0


@kernel
def _add_by_head(
    near: Any,
    begin: int,
    stop: int,
    low: int,
    own: int,
    j: int,
    gradient: Any,
    targets: Any,
    rows: Any,
    source: Any,
    heads: int,
    head_columns: int,
    slope: float,
    dropout: float,
    seed: Any,
    ids: Any,
    lanes: Any,
    out: Any,
    space: Any,
) -> None:
    """Add what comes back along the edges near[begin:stop] of a block, with a list of edges for each head."""
    kind = out.dtype.type
    weights, log_sums, means, matches, keeps = space[0], space[1], space[2], space[3], space[4]
    block = np.zeros(EDGE_BLOCK, np.int64)
    per_head = head_columns // LANES
    if dropout > 0:
        for h in range(heads):
            for k in range(begin, stop):
                keeps[h * EDGE_BLOCK + k] = keep_factor(
                    seed, row_at(ids, near[k]), row_at(ids, own + j), h, dropout
                )
    # Whole vectors of edges, of which some may be of other buckets: these weigh nothing.
    start, end = begin // LANES * LANES, -(-stop // LANES) * LANES
    for k in range(start, end):
        inside = begin <= k < stop
        block[k] = near[k] - low if inside else 0
        for h in range(heads):
            e = h * EDGE_BLOCK + k
            weights[e] = targets[block[k], h] if inside else kind(0)
            log_sums[e] = targets[block[k], heads + h] if inside else np.inf
            means[e] = targets[block[k], 2 * heads + h] if inside else kind(0)
            if not inside:
                keeps[e] = 0
    for k in range(begin, stop):
        ask_for(gradient, block[k], heads * head_columns)
    vectors = (end - start) // LANES
    for h in range(heads):
        e, added = h * EDGE_BLOCK + start, source[j, h]
        match_rows(matches, e, vectors, gradient, block[start:end], rows, j, h * head_columns, per_head)
        for k in range(start, begin):
            matches[h * EDGE_BLOCK + k] = 0
        for k in range(stop, end):
            matches[h * EDGE_BLOCK + k] = 0
        # fmt: off
        if dropout > 0:
            weigh_back_part(
                weights, log_sums, means, matches, keeps, e, vectors, added, kind(slope), lanes, j, h * LANES
            )
        else:
            weigh_back_part(
                weights, log_sums, means, matches, None, e, vectors, added, kind(slope), lanes, j, h * LANES
            )
        # fmt: on
    for c in range(0, out.shape[1], MAX_TILE):
        tile = min(out.shape[1] - c, MAX_TILE)
        accumulate(out, j, gradient, block, begin, -1, -1, stop, c, tile, weights, EDGE_BLOCK, per_head)

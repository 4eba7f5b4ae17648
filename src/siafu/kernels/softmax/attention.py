"""The softmax-weighted gather of GAT and its adjoint, with no number kept for an edge.

    z_ij = leaky(source_j + target_i)      a_ij = exp(z_ij - log_sum_i)      out_i = Σ_j keep_ij · a_ij · rows_j

The forward pass reads each row once: edges come in blocks, weights are relative to the greatest logit so far
and sums are rescaled when it grows. The backward pass makes a_ij again from two numbers of a vertex, over the
out-edges; what the targets' logits need is summed in the forward pass (`positive`), so no second pass is needed:
Σ_j dz_ij is zero but for the slope, hence only edges with z > 0 count.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.hashing import GOLDEN, mix, uniform
from siafu.base.jit import kernel
from siafu.kernels.chunks import EVERY, over_rows, row_at
from siafu.kernels.llvm.emit import LANES, MAX_TILE
from siafu.kernels.llvm.tiles import accumulate_near, ask_early, ask_for, one_by_one
from siafu.kernels.rows import Table, empty_table
from siafu.kernels.softmax.blocks import match_rows, soften, weigh, weigh_back
from siafu.kernels.softmax.head_vectors import (
    HEAD_STEP,
    SOURCE_STEP,
    attend_adjoint_block,
    attend_row,
    drop_threshold,
    edge_key,
    end_adjoint_block,
    working_space,
)
from siafu.kernels.sums import sum_dtype

EDGE_BLOCK = 64  # edges whose weights are made together: their rows stay in the first-level cache


class Attention(NamedTuple):
    """Settings of an attention gather.

    heads:         independent softmaxes; each has `head_columns` columns of a row
    head_columns:  a multiple of `LANES` (rows.pack_heads pads to it)
    slope:         of the leaky ReLU below zero, 0 to 1
    self_loops:    each vertex has exactly one self-loop, stored ones are left out; else edges as they are
    dropout, seed: share of the weights a_ij put to zero, by a hash of (seed, i, j, head)
    """

    heads: int
    head_columns: int
    slope: float
    self_loops: bool
    dropout: float = 0.0
    seed: int = 0

    @property
    def arguments(self) -> tuple[int, int, float, bool, float, np.uint64]:
        """All of it as the kernels take it."""
        return (*self[:5], np.uint64(self.seed))


class Attended(NamedTuple):
    """The gather and what its adjoint needs.

    out:            [V, heads · head_columns]
    log_sum:        [V, heads], the logarithm of the softmax's denominator
    positive:       [V, heads · head_columns], `out` over the edges with z > 0 alone; None where no adjoint follows
    positive_share: [V, heads], the sum of a_ij over those edges, before dropout; None likewise
    """

    out: Table
    log_sum: NDArray[Any]
    positive: Table | None
    positive_share: NDArray[Any] | None


def gather_attention(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: Table,
    source: NDArray[Any],
    target: NDArray[Any],
    how: Attention,
    *,
    adjoint_follows: bool,
) -> Attended:
    """Attend over each vertex's in-edges; source and target are the [V, heads] parts of the logits."""
    vertices, kind = len(indptr) - 1, sum_dtype(rows)
    found = Attended(
        empty_table(vertices, rows.shape[1], kind),
        np.empty((vertices, how.heads), kind),
        empty_table(vertices, rows.shape[1], kind) if adjoint_follows else None,
        np.empty((vertices, how.heads), kind) if adjoint_follows else None,
    )
    over_rows(
        indptr,
        rows.shape[1],
        lambda first, last: attend_range(
            indptr, indices, rows, source, target, *how.arguments, EVERY, *found, EVERY, first, last
        ),
    )
    return found


def gather_attention_adjoint(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: Table,
    source: NDArray[Any],
    targets: NDArray[Any],
    gradient: Table,
    how: Attention,
) -> tuple[Table, NDArray[Any]]:
    """The gradients of `rows` and of `source`, over out-edges (indptr, indices by source).

    targets:  [V, 3 · heads]: each vertex's target logits, log_sum, and ⟨gradient, out⟩ per head
    gradient: of `out`, packed like `rows`
    """
    vertices, kind = len(indptr) - 1, sum_dtype(rows)
    out = empty_table(vertices, rows.shape[1], kind)
    of_source = np.empty((vertices, how.heads), kind)
    over_rows(
        indptr,
        2 * rows.shape[1],
        lambda first, last: attend_adjoint_range(
            indptr,
            indices,
            rows,
            source,
            targets,
            gradient,
            *how.arguments,
            EVERY,
            out,
            of_source,
            first,
            last,
        ),
    )
    return out, of_source


@kernel
def attend_range(
    indptr: Any,
    indices: Any,
    rows: Any,
    source: Any,
    target: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    out: Any,
    log_sum: Any,
    positive: Any,
    positive_share: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`gather_attention` for the rows from `first` up to `last`, or those that picked[first:last] names, in this thread.

    ids:    what dropout calls the vertices, so that it is the same for every numbering; `EVERY`: their rows' numbers
    picked: `EVERY`: all rows
    """
    kind = out.dtype.type
    near = np.empty(EDGE_BLOCK, np.int64)
    logits = np.empty(heads * EDGE_BLOCK, out.dtype)
    weights = np.empty(heads * EDGE_BLOCK, out.dtype)
    above = np.empty(heads * EDGE_BLOCK, out.dtype)
    highest = np.empty(heads, out.dtype)
    total = np.empty(heads, out.dtype)
    per_head = head_columns // LANES
    space, keys = working_space(EDGE_BLOCK, out), np.empty(EDGE_BLOCK, np.uint64)
    threshold, scale = drop_threshold(dropout), kind(kept_factor(dropout))
    asked = 0
    for p in range(first, last):
        i = row_at(picked, p)
        at, count = next_edges(indices, indptr[i], indptr[i + 1], i, self_loops, near, self_loops)
        end = indptr[last] if len(picked) == 0 else indptr[i + 1]
        asked = ask_onward(indices, asked, at, end, rows, source)
        if heads == LANES and count > 0 and at == indptr[i + 1]:
            # fmt: off
            if dropout > 0:
                for k in range(count):
                    keys[k] = edge_key(seed, row_at(ids, i), row_at(ids, near[k]))
                attend_row(
                    rows, source, target, kind(slope), keys, threshold, scale, per_head,
                    out, log_sum, positive, positive_share, i, near, count, space,
                )
            else:
                attend_row(
                    rows, source, target, kind(slope), None, threshold, scale, per_head,
                    out, log_sum, positive, positive_share, i, near, count, space,
                )
            # fmt: on
            continue
        out[i, :] = 0
        highest[:] = -np.inf
        total[:] = 0
        if positive is not None:
            positive[i, :] = 0
            positive_share[i, :] = 0
        while count > 0:
            for k in range(count):
                ask_for(rows, near[k], heads * head_columns)
            by_head(source, near, count, heads, 0, -np.inf, logits)
            vectors = -(-count // LANES)
            for h in range(heads):
                best = soften(logits, h * EDGE_BLOCK, vectors, target[i, h], kind(slope))
                if best > highest[h]:
                    shrink = kind(math.exp(highest[h] - best))
                    highest[h] = best
                    total[h] *= shrink
                    scale_head(out, i, h, head_columns, shrink)
                    if positive is not None:
                        positive_share[i, h] *= shrink
                        scale_head(positive, i, h, head_columns, shrink)
                # If all logits so far are -inf, no edge counts yet; any finite shift gives weights of 0.
                shift = highest[h] if highest[h] > -np.inf else kind(0)
                whole, part = weigh(logits, weights, above, h * EDGE_BLOCK, vectors, shift)
                total[h] += whole
                if positive is not None:
                    positive_share[i, h] += part
            if dropout > 0:
                for h in range(heads):
                    for k in range(count):
                        keep = kind(keep_factor(seed, row_at(ids, i), row_at(ids, near[k]), h, dropout))
                        weights[h * EDGE_BLOCK + k] *= keep
                        above[h * EDGE_BLOCK + k] *= keep
            for c in range(0, out.shape[1], MAX_TILE):
                tile = min(out.shape[1] - c, MAX_TILE)
                accumulate_near(out, i, rows, near, 0, -1, -1, count, c, tile, weights, EDGE_BLOCK, per_head)
                if positive is not None:
                    accumulate_near(
                        positive, i, rows, near, 0, -1, -1, count, c, tile, above, EDGE_BLOCK, per_head
                    )
            at, count = next_edges(indices, at, indptr[i + 1], i, self_loops, near, False)
            asked = ask_onward(indices, asked, at, end, rows, source)
        for h in range(heads):
            # Written so that a sum that is not a number stays one: a divergence must be seen.
            share = kind(0) if total[h] == 0 else kind(1) / total[h]
            log_sum[i, h] = kind(0) if total[h] == 0 else highest[h] + math.log(total[h])
            scale_head(out, i, h, head_columns, share)
            if positive is not None:
                positive_share[i, h] *= share
                scale_head(positive, i, h, head_columns, share)


@kernel
def attend_adjoint_range(
    indptr: Any,
    indices: Any,
    rows: Any,
    source: Any,
    targets: Any,
    gradient: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    out: Any,
    of_source: Any,
    first: int,
    last: int,
) -> None:
    """`gather_attention_adjoint` for the rows from `first` up to `last`, in this thread; ids: as in `attend_range`."""
    kind = out.dtype.type
    near = np.empty(EDGE_BLOCK, np.int64)
    weights = np.empty(heads * EDGE_BLOCK, out.dtype)
    log_sums = np.empty(heads * EDGE_BLOCK, out.dtype)
    means = np.empty(heads * EDGE_BLOCK, out.dtype)
    matches = np.empty(heads * EDGE_BLOCK, out.dtype)
    keeps = np.empty(heads * EDGE_BLOCK, out.dtype)
    per_head = head_columns // LANES
    _, along, _, slots, _, pulls = working_space(EDGE_BLOCK, out)
    slots[:] = 0
    keys = np.empty(EDGE_BLOCK, np.uint64)
    threshold, scale = drop_threshold(dropout), kind(kept_factor(dropout))
    asked = 0
    for j in range(first, last):
        at, count = next_edges(indices, indptr[j], indptr[j + 1], j, self_loops, near, self_loops)
        asked = ask_onward(indices, asked, at, indptr[last], gradient, targets)
        out[j, :] = 0
        of_source[j, :] = 0
        while heads == LANES and count > 0:
            # fmt: off
            if dropout > 0:
                for k in range(count):
                    keys[k] = edge_key(seed, row_at(ids, near[k]), row_at(ids, j))
                attend_adjoint_block(
                    rows, source, targets, gradient, kind(slope), keys, threshold, scale, per_head,
                    out, j, near, 0, count, along, slots,
                )
            else:
                attend_adjoint_block(
                    rows, source, targets, gradient, kind(slope), None, threshold, scale, per_head,
                    out, j, near, 0, count, along, slots,
                )
            # fmt: on
            end_adjoint_block(slots, pulls, of_source, j)
            at, count = next_edges(indices, at, indptr[j + 1], j, self_loops, near, False)
            asked = ask_onward(indices, asked, at, indptr[last], gradient, targets)
        while count > 0:
            for k in range(count):
                ask_for(gradient, near[k], heads * head_columns)
            vectors = -(-count // LANES)
            near[count : vectors * LANES] = j
            by_head(targets, near, count, heads, 0, 0, weights)
            by_head(targets, near, count, heads, heads, np.inf, log_sums)
            by_head(targets, near, count, heads, 2 * heads, 0, means)
            for h in range(heads):
                begin, own = h * EDGE_BLOCK, source[j, h]
                match_rows(matches, begin, vectors, gradient, near, rows, j, h * head_columns, per_head)
                if dropout > 0:
                    for k in range(count):
                        keeps[begin + k] = keep_factor(seed, row_at(ids, near[k]), row_at(ids, j), h, dropout)
                    keeps[begin + count : begin + vectors * LANES] = 0
                    of_source[j, h] += weigh_back(
                        weights, log_sums, means, matches, keeps, begin, vectors, own, kind(slope)
                    )
                else:
                    of_source[j, h] += weigh_back(
                        weights, log_sums, means, matches, None, begin, vectors, own, kind(slope)
                    )
            for c in range(0, out.shape[1], MAX_TILE):
                tile = min(out.shape[1] - c, MAX_TILE)
                accumulate_near(
                    out, j, gradient, near, 0, -1, -1, count, c, tile, weights, EDGE_BLOCK, per_head
                )
            at, count = next_edges(indices, at, indptr[j + 1], j, self_loops, near, False)
            asked = ask_onward(indices, asked, at, indptr[last], gradient, targets)


@kernel
def by_head(table: Any, near: Any, count: int, heads: int, column: int, spare: float, out: Any) -> None:
    """out[h * EDGE_BLOCK + k] = table[near[k], column + h]; `spare` up to the next whole vector."""
    for k in range(np.uint64(count)):
        row = np.uint64(near[k])
        for h in range(np.uint64(heads)):
            out[h * np.uint64(EDGE_BLOCK) + k] = table[row, np.uint64(column) + h]
            one_by_one()
    for k in range(count, -(-count // LANES) * LANES):
        for h in range(heads):
            out[h * EDGE_BLOCK + k] = spare


@kernel
def scale_head(table: Any, row: int, head: int, columns: int, factor: Any) -> None:
    for c in range(head * columns, (head + 1) * columns):
        table[row, c] *= factor


@kernel
def next_edges(
    indices: Any, at: int, end: int, vertex: int, self_loops: bool, near: Any, add_self: bool
) -> tuple[int, int]:
    """Fill `near` with the next ends of edges: the position after them, and how many."""
    count = 0
    if add_self:
        near[0] = vertex
        count = 1
    while at < end and count < len(near):
        if not (self_loops and indices[at] == vertex):
            near[count] = indices[at]
            count += 1
        at += 1
    return at, count


@kernel
def ask_onward(indices: Any, asked: int, at: int, end: int, rows: Any, logits: Any) -> int:
    """Ask for what the edges of the block after `at` read, up to edge `end`, where they are not `asked` for; up to where they are then."""
    until = min(at + EDGE_BLOCK, end)
    for e in range(max(asked, at), until):
        ask_early(rows, indices[e], rows.shape[1])
        ask_early(logits, indices[e], logits.shape[1])
    return max(asked, until)


@kernel
def keep_factor(seed: Any, i: int, j: int, head: int, dropout: float) -> float:
    """0 with probability `dropout`, else what makes the mean 1: a hash, so any pass finds the same."""
    edge = np.uint64(i) * GOLDEN + np.uint64(j) * SOURCE_STEP
    if uniform(mix(seed + edge + np.uint64(head) * HEAD_STEP)) < dropout:
        return 0.0
    return kept_factor(dropout)


@kernel
def kept_factor(dropout: float) -> float:
    """Factor of weights that are not dropped."""
    return 1.0 / (1.0 - dropout) if dropout < 1 else 0.0

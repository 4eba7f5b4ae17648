"""The softmax-weighted gather of GAT and its adjoint, with no number kept for an edge.

    z_ij = leaky(source_j + target_i)      a_ij = exp(z_ij - log_sum_i)      out_i = Σ_j keep_ij · a_ij · rows_j

The forward pass reads each row once: edges come in blocks, weights are relative to the greatest logit so far
and sums are rescaled when it grows. The backward pass makes a_ij again from two numbers of a vertex, over the
out-edges; what the targets' logits need is summed in the forward pass (`positive`), so no second pass is needed:
Σ_j dz_ij is zero but for the slope, hence only edges with z > 0 count.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from siafu.jit import kernel
from siafu.kernels.chunks import over_rows
from siafu.kernels.rows import Table, empty_table
from siafu.kernels.sums import sum_dtype
from siafu.kernels.vector import LANES, MAX_TILE, accumulate, ask_for, dot

_BLOCK = 64  # edges whose weights are made together: their rows stay in the first-level cache


class Attention(NamedTuple):
    """What an attention gather does, besides the numbers.

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
            indptr, indices, rows, source, target, *_settings(how), *found, first, last
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
            indptr, indices, rows, source, targets, gradient, *_settings(how), out, of_source, first, last
        ),
    )
    return out, of_source


def _settings(how: Attention) -> tuple[int, int, float, bool, float, np.uint64]:
    return how.heads, how.head_columns, how.slope, how.self_loops, how.dropout, np.uint64(how.seed)


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
    out: Any,
    log_sum: Any,
    positive: Any,
    positive_share: Any,
    first: int,
    last: int,
) -> None:
    """`gather_attention` for the rows from `first` up to `last`, in this thread."""
    kind = out.dtype.type
    near = np.empty(_BLOCK, np.int64)
    logits = np.empty(_BLOCK * heads, out.dtype)
    weights = np.empty(_BLOCK * heads, out.dtype)
    above = np.empty(_BLOCK * heads, out.dtype)
    highest = np.empty(heads, out.dtype)
    total = np.empty(heads, out.dtype)
    columns = heads * head_columns
    for i in range(first, last):
        out[i, :] = 0
        highest[:] = -np.inf
        total[:] = 0
        if positive is not None:
            positive[i, :] = 0
            positive_share[i, :] = 0
        at, count = _next_edges(indices, indptr[i], indptr[i + 1], i, self_loops, near, self_loops)
        while count > 0:
            for k in range(count):
                ask_for(rows, near[k], columns)
            for k in range(count):
                for h in range(heads):
                    z = source[near[k], h] + target[i, h]
                    logits[k * heads + h] = z if z > 0 else z * kind(slope)
            for h in range(heads):
                best = highest[h]
                for k in range(count):
                    best = max(best, logits[k * heads + h])
                if best > highest[h]:
                    shrink = exponential(highest[h] - best)
                    highest[h] = best
                    total[h] *= shrink
                    for c in range(h * head_columns, (h + 1) * head_columns):
                        out[i, c] *= shrink
                    if positive is not None:
                        positive_share[i, h] *= shrink
                        for c in range(h * head_columns, (h + 1) * head_columns):
                            positive[i, c] *= shrink
            for k in range(count):
                for h in range(heads):
                    weights[k * heads + h] = logits[k * heads + h] - highest[h]
            for t in range(count * heads):
                weights[t] = exponential(weights[t])
                above[t] = weights[t] if logits[t] > 0 else kind(0)
            for k in range(count):
                for h in range(heads):
                    total[h] += weights[k * heads + h]
                    if positive is not None:
                        positive_share[i, h] += above[k * heads + h]
            if dropout > 0:
                for k in range(count):
                    for h in range(heads):
                        keep = kind(_keep(seed, i, near[k], h, dropout))
                        weights[k * heads + h] *= keep
                        above[k * heads + h] *= keep
            per_head = head_columns // LANES
            for c in range(0, columns, MAX_TILE):
                tile = min(out.shape[1] - c, MAX_TILE)
                accumulate(out, i, rows, near, 0, -1, -1, count, c, tile, weights, 0, heads, per_head)
                if positive is not None:
                    accumulate(positive, i, rows, near, 0, -1, -1, count, c, tile, above, 0, heads, per_head)
            at, count = _next_edges(indices, at, indptr[i + 1], i, self_loops, near, False)
        for h in range(heads):
            if total[h] > 0:
                share = kind(1) / total[h]
                log_sum[i, h] = highest[h] + np.log(total[h])
                for c in range(h * head_columns, (h + 1) * head_columns):
                    out[i, c] *= share
                if positive is not None:
                    positive_share[i, h] *= share
                    for c in range(h * head_columns, (h + 1) * head_columns):
                        positive[i, c] *= share
            else:
                log_sum[i, h] = 0


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
    out: Any,
    of_source: Any,
    first: int,
    last: int,
) -> None:
    """`gather_attention_adjoint` for the rows from `first` up to `last`, in this thread."""
    kind = out.dtype.type
    near = np.empty(_BLOCK, np.int64)
    steep = np.empty(_BLOCK * heads, out.dtype)
    weights = np.empty(_BLOCK * heads, out.dtype)
    columns = heads * head_columns
    per_head = head_columns // LANES
    for j in range(first, last):
        out[j, :] = 0
        of_source[j, :] = 0
        at, count = _next_edges(indices, indptr[j], indptr[j + 1], j, self_loops, near, self_loops)
        while count > 0:
            for k in range(count):
                ask_for(gradient, near[k], columns)
            for k in range(count):
                i = near[k]
                for h in range(heads):
                    z = source[j, h] + targets[i, h]
                    steep[k * heads + h] = kind(1) if z > 0 else kind(slope)
                    weights[k * heads + h] = z * steep[k * heads + h] - targets[i, heads + h]
            for t in range(count * heads):
                weights[t] = exponential(weights[t])
            for k in range(count):
                i = near[k]
                for h in range(heads):
                    t = k * heads + h
                    keep = kind(1)
                    if dropout > 0:
                        keep = kind(_keep(seed, i, j, h, dropout))
                    match = dot(gradient, i, rows, j, h * head_columns, per_head) * keep
                    of_source[j, h] += weights[t] * (match - targets[i, 2 * heads + h]) * steep[t]
                    weights[t] *= keep
            for c in range(0, columns, MAX_TILE):
                tile = min(out.shape[1] - c, MAX_TILE)
                accumulate(out, j, gradient, near, 0, -1, -1, count, c, tile, weights, 0, heads, per_head)
            at, count = _next_edges(indices, at, indptr[j + 1], j, self_loops, near, False)


@kernel
def _next_edges(
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
def _keep(seed: Any, i: int, j: int, head: int, dropout: float) -> float:
    """0 with probability `dropout`, else what makes the mean 1: a hash, so any pass finds the same."""
    mixed = seed + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(j) * np.uint64(0xD1B54A32D192ED03)
    mixed += np.uint64(head) * np.uint64(0x8CB92BA72F3D8DD7)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    if np.float64(mixed >> np.uint64(11)) * 2.0**-53 < dropout:
        return 0.0
    return 1.0 / (1.0 - dropout)


def exponential(x: Any) -> Any:
    """exp(x) for x ≤ 0: in float32 a form that the compiler turns into vectors, right to 2 units in the last place."""
    return np.exp(x)


@overload(exponential)  # type: ignore[untyped-decorator]
def _exponential(x: Any) -> Any:
    return _exp32 if x == numba.float32 else lambda x: np.exp(x)


_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87.0)
_C = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
)


def _exp32(x: Any) -> Any:
    """Cephes's scheme: exp(x) = 2**n · exp(r), r within ln(2)/2, by a polynomial of degree 7."""
    bounded = max(x, _LOWEST)
    n = np.floor(bounded * _LOG2_E + np.float32(0.5))
    r = bounded - n * _LN2_HIGH - n * _LN2_LOW
    p = _C[0]
    p = p * r + _C[1]
    p = p * r + _C[2]
    p = p * r + _C[3]
    p = p * r + _C[4]
    p = p * r + _C[5]
    p = p * r * r + r + np.float32(1)
    power = (np.int32(n) + np.int32(127)) << np.int32(23)
    result = p * np.int32(power).view(np.float32)
    return result if x > _LOWEST else np.float32(0)

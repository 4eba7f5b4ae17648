"""Softmax gathers whose logit is a function of both ends of an edge, and their adjoints, with no row kept for an edge.

    s_ij = keys_j + targets_i + e_ij              e_ij = features_ij · mix
    z_ij = ⟨queries_i, leaky_relu(s_ij)⟩          for each head, over its columns
    out_i = Σ_j keep_ij · a_ij · value_j          a_ij = exp(z_ij - log_sum_i)

Additive attention (GATv2) has targets, one query for all vertices (a table whose rows lie in one place), and the keys
for values. Products (Transformer) have no targets, no leaky ReLU, and value_j = values_j + e_ij. Edges without features
have no e_ij.

The forward pass goes block by block with a running maximum, as `attention` does. The backward pass makes s_ij and a_ij
again twice: over out-edges for what the sources get, over in-edges for what the targets and the weights get.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from siafu.base.jit import fast_kernel, kernel
from siafu.kernels.attention import EDGE_BLOCK, keep_factor, scale_head
from siafu.kernels.blocks import weigh
from siafu.kernels.chunks import row_at
from siafu.kernels.emit import LANES, MAX_TILE
from siafu.kernels.tiles import accumulate, ask_for, put, value_of

_SOON = 4  # edges between asking for rows and reading them, on the way back


class EdgeTerms(NamedTuple):
    """The part of features in edges, as kernels take it; four None where there are none.

    features: [E, D] of all edges, float32, float64 or uint16 with bfloat16 bits
    numbers:  [e] which of them is whose, by the edges that are walked; None: in that order
    mix:      [D, columns] in the type that rows are summed in, heads padded
    loops:    [V, D] of the self-loops that vertices get; None: they get none
    """

    features: Any = None
    numbers: Any = None
    mix: Any = None
    loops: Any = None


@kernel
def next_places(
    indices: Any, at: int, end: int, vertex: int, self_loops: bool, near: Any, places: Any, add_self: bool
) -> tuple[int, int]:
    """Fill `near` with the next ends of edges and `places` with where they stand, -1 for an added self-loop."""
    count = 0
    if add_self:
        near[0], places[0] = vertex, -1
        count = 1
    while at < end and count < len(near):
        if not (self_loops and indices[at] == vertex):
            near[count], places[count] = indices[at], at
            count += 1
        at += 1
    return at, count


@kernel
def count_rows(table: Any) -> int:
    """0 of no table."""
    if table is None:
        return 0
    return table.shape[0]  # type: ignore[no-any-return]


@kernel
def feature_of(features: Any, numbers: Any, loops: Any, place: int, vertex: int, column: int) -> Any:
    """A number of the edge at `place`, or of the vertex's self-loop where that is -1."""
    if loops is not None:  # noqa: SIM102  (Numba prunes a branch whose only condition is None)
        if place < 0:
            return value_of(loops, vertex, column)
    return value_of(features, row_at(numbers, place), column)


@fast_kernel
def edge_term(features: Any, numbers: Any, mix: Any, loops: Any, place: int, vertex: int, term: Any) -> None:
    """term = the features of the edge at `place`, or of the vertex's self-loop, times `mix`."""
    width = term.shape[0]
    for c in range(width):
        term[c] = 0
    for d in range(mix.shape[0]):
        factor = term.dtype.type(feature_of(features, numbers, loops, place, vertex, d))
        for c in range(width):
            put(term, 0, c, value_of(term, 0, c) + factor * value_of(mix, d, c))


@fast_kernel
def _logit(
    keys: Any,
    targets: Any,
    queries: Any,
    features: Any,
    term: Any,
    j: int,
    i: int,
    begin: int,
    columns: int,
    slope: Any,
    total: Any,
) -> Any:
    """z_ij of the head whose columns start at `begin`; total: a zero of the type to sum in."""
    for c in range(begin, begin + columns):
        s = value_of(keys, j, c)
        if targets is not None:
            s += value_of(targets, i, c)
        if features is not None:
            s += value_of(term, 0, c)
        if targets is not None:
            s = s if s > 0 else slope * s
        total += value_of(queries, i, c) * s
    return total


@fast_kernel
def _match(
    gradient: Any,
    values: Any,
    features: Any,
    term: Any,
    products: bool,
    i: int,
    j: int,
    begin: int,
    columns: int,
    total: Any,
) -> Any:
    """⟨gradient_i, value_j⟩ of a head."""
    for c in range(begin, begin + columns):
        value = value_of(values, j, c)
        if features is not None:  # noqa: SIM102
            if products:
                value += value_of(term, 0, c)
        total += value_of(gradient, i, c) * value
    return total


@kernel
def pair_range(
    indptr: Any,
    indices: Any,
    keys: Any,
    values: Any,
    targets: Any,
    queries: Any,
    features: Any,
    numbers: Any,
    mix: Any,
    loops: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    out: Any,
    log_sum: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """Gather for the rows from `first` up to `last`, or those that picked[first:last] names, in this thread.

    keys, values:     [columns of the edges, heads · head_columns]; values None: the keys
    targets, queries: by row; targets None: products
    features … loops: as `EdgeTerms` has them
    heads … seed:     as `Attention` has them; ids: what dropout calls the vertices
    out, log_sum:     get the gathered rows, and the logarithms of the softmaxes' denominators
    """
    kind = out.dtype.type
    width = heads * head_columns
    near, places = np.empty(EDGE_BLOCK, np.int64), np.empty(EDGE_BLOCK, np.int64)
    logits = np.empty(heads * EDGE_BLOCK, out.dtype)
    weights = np.empty(heads * EDGE_BLOCK, out.dtype)
    above = np.empty(heads * EDGE_BLOCK, out.dtype)
    highest, total = np.empty(heads, out.dtype), np.empty(heads, out.dtype)
    term = np.zeros(width, out.dtype)
    mixed = np.zeros((heads, count_rows(mix)), out.dtype)
    mixes = features is not None and values is not None
    per_head = head_columns // LANES
    for p in range(first, last):
        i = row_at(picked, p)
        out[i, :] = 0
        highest[:] = -np.inf
        total[:] = 0
        mixed[:, :] = 0
        at, count = next_places(indices, indptr[i], indptr[i + 1], i, self_loops, near, places, self_loops)
        while count > 0:
            for k in range(count):
                ask_for(keys, near[k], width)
                if values is not None:
                    ask_for(values, near[k], width)
            for k in range(count):
                if features is not None:
                    edge_term(features, numbers, mix, loops, places[k], i, term)
                for h in range(heads):
                    logits[h * EDGE_BLOCK + k] = _logit(
                        keys,
                        targets,
                        queries,
                        features,
                        term,
                        near[k],
                        i,
                        h * head_columns,
                        head_columns,
                        kind(slope),
                        kind(0),
                    )
            vectors = -(-count // LANES)
            for h in range(heads):
                start = h * EDGE_BLOCK
                logits[start + count : start + vectors * LANES] = -np.inf
                best = highest[h]
                for k in range(start, start + count):
                    # What is not a number stays: a divergence must be seen.
                    if not logits[k] <= best:
                        best = logits[k]
                if best != highest[h]:
                    shrink = kind(math.exp(highest[h] - best))
                    highest[h] = best
                    total[h] *= shrink
                    scale_head(out, i, h, head_columns, shrink)
                    mixed[h] *= shrink
                shift = highest[h] if highest[h] != -np.inf else kind(0)
                whole, _ = weigh(logits, weights, above, start, vectors, shift)
                total[h] += whole
            if dropout > 0:
                for h in range(heads):
                    for k in range(count):
                        keep = keep_factor(seed, row_at(ids, i), row_at(ids, near[k]), h, dropout)
                        weights[h * EDGE_BLOCK + k] *= kind(keep)
            for c in range(0, out.shape[1], MAX_TILE):
                tile = min(out.shape[1] - c, MAX_TILE)
                accumulate(
                    out,
                    i,
                    keys if values is None else values,
                    near,
                    0,
                    -1,
                    -1,
                    count,
                    c,
                    tile,
                    weights,
                    EDGE_BLOCK,
                    per_head,
                )
            if features is not None:
                for k in range(count if mixes else 0):
                    _add_features(features, numbers, loops, places[k], i, weights, k, mixed)
            at, count = next_places(indices, at, indptr[i + 1], i, self_loops, near, places, False)
        for h in range(heads):
            share = kind(0) if total[h] == 0 else kind(1) / total[h]
            log_sum[i, h] = kind(0) if total[h] == 0 else highest[h] + math.log(total[h])
            scale_head(out, i, h, head_columns, share)
            if features is not None:
                for d in range(mix.shape[0] if mixes else 0):
                    factor = mixed[h, d] * share
                    for c in range(h * head_columns, (h + 1) * head_columns):
                        out[i, c] += factor * mix[d, c]


@kernel
def _add_features(
    features: Any, numbers: Any, loops: Any, place: int, vertex: int, weights: Any, k: int, mixed: Any
) -> None:
    """mixed[h] += the weight of edge k in head h, times its features."""
    for h in range(mixed.shape[0]):
        weight = weights[h * EDGE_BLOCK + k]
        for d in range(mixed.shape[1]):
            mixed[h, d] += weight * feature_of(features, numbers, loops, place, vertex, d)


@fast_kernel
def pair_sources_range(
    indptr: Any,
    indices: Any,
    keys: Any,
    values: Any,
    targets: Any,
    queries: Any,
    features: Any,
    numbers: Any,
    mix: Any,
    loops: Any,
    gradient: Any,
    stats: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    of_keys: Any,
    of_values: Any,
    first: int,
    last: int,
) -> None:
    """Gradients of the sources' rows from `first` up to `last`, over out-edges, in this thread.

    targets, queries, gradient, stats: by the columns of the edges; stats: [log_sum, ⟨gradient, out⟩] of each head
    of_values: None where keys are the values
    """
    kind = of_keys.dtype.type
    width, bend = heads * head_columns, kind(slope)
    near, places = np.empty(EDGE_BLOCK, np.int64), np.empty(EDGE_BLOCK, np.int64)
    term = np.zeros(width, of_keys.dtype)
    for j in range(first, last):
        of_keys[j, :] = 0
        if of_values is not None:
            of_values[j, :] = 0
        at, count = next_places(indices, indptr[j], indptr[j + 1], j, self_loops, near, places, self_loops)
        while count > 0:
            for k in range(count):
                i = near[k]
                if k + _SOON < count:
                    ask_for(gradient, near[k + _SOON], width)
                    if targets is not None:
                        ask_for(targets, near[k + _SOON], width)
                    else:
                        ask_for(queries, near[k + _SOON], width)
                if features is not None:
                    edge_term(features, numbers, mix, loops, places[k], j, term)
                for h in range(heads):
                    begin = h * head_columns
                    z = _logit(
                        keys, targets, queries, features, term, j, i, begin, head_columns, bend, kind(0)
                    )
                    match = _match(
                        gradient,
                        keys if values is None else values,
                        features,
                        term,
                        targets is None,
                        i,
                        j,
                        begin,
                        head_columns,
                        kind(0),
                    )
                    weight = kind(math.exp(z - stats[i, h]))
                    keep = kind(1)
                    if dropout > 0:
                        keep = kind(keep_factor(seed, row_at(ids, i), row_at(ids, j), h, dropout))
                    of_logit = weight * (keep * match - stats[i, heads + h])
                    weight *= keep
                    for c in range(begin, begin + head_columns):
                        of = of_logit * value_of(queries, i, c)
                        if targets is not None:
                            s = value_of(keys, j, c) + value_of(targets, i, c)
                            if features is not None:
                                s += value_of(term, 0, c)
                            of = of if s > 0 else bend * of
                        passed = weight * value_of(gradient, i, c)
                        if of_values is None:
                            put(of_keys, j, c, value_of(of_keys, j, c) + (of + passed))
                        else:
                            put(of_keys, j, c, value_of(of_keys, j, c) + of)
                            put(of_values, j, c, value_of(of_values, j, c) + passed)
            at, count = next_places(indices, at, indptr[j + 1], j, self_loops, near, places, False)


@fast_kernel
def pair_targets_range(
    indptr: Any,
    indices: Any,
    keys: Any,
    values: Any,
    targets: Any,
    queries: Any,
    features: Any,
    numbers: Any,
    mix: Any,
    loops: Any,
    gradient: Any,
    stats: Any,
    heads: int,
    head_columns: int,
    slope: float,
    self_loops: bool,
    dropout: float,
    seed: Any,
    ids: Any,
    of_targets: Any,
    of_queries: Any,
    of_mix: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """Gradients of the targets' rows from `first` up to `last`, or those that picked[first:last] names, over in-edges.

    targets, queries, gradient, stats: by row
    of_targets: None without targets
    of_queries: by row; with targets a table of one place, to which is added
    of_mix:     is added to; None without features
    """
    kind = of_queries.dtype.type
    width, bend = heads * head_columns, kind(slope)
    near, places = np.empty(EDGE_BLOCK, np.int64), np.empty(EDGE_BLOCK, np.int64)
    term, of_term = np.zeros(width, of_queries.dtype), np.zeros(width, of_queries.dtype)
    for p in range(first, last):
        i = row_at(picked, p)
        if of_targets is not None:
            of_targets[i, :] = 0
        else:
            of_queries[i, :] = 0
        at, count = next_places(indices, indptr[i], indptr[i + 1], i, self_loops, near, places, self_loops)
        while count > 0:
            for k in range(count):
                j = near[k]
                if k + _SOON < count:
                    ask_for(keys, near[k + _SOON], width)
                    if values is not None:
                        ask_for(values, near[k + _SOON], width)
                if features is not None:
                    edge_term(features, numbers, mix, loops, places[k], i, term)
                for h in range(heads):
                    begin = h * head_columns
                    z = _logit(
                        keys, targets, queries, features, term, j, i, begin, head_columns, bend, kind(0)
                    )
                    match = _match(
                        gradient,
                        keys if values is None else values,
                        features,
                        term,
                        targets is None,
                        i,
                        j,
                        begin,
                        head_columns,
                        kind(0),
                    )
                    weight = kind(math.exp(z - stats[i, h]))
                    keep = kind(1)
                    if dropout > 0:
                        keep = kind(keep_factor(seed, row_at(ids, i), row_at(ids, j), h, dropout))
                    of_logit = weight * (keep * match - stats[i, heads + h])
                    weight *= keep
                    for c in range(begin, begin + head_columns):
                        s = value_of(keys, j, c)
                        if targets is not None:
                            s += value_of(targets, i, c)
                        if features is not None:
                            s += value_of(term, 0, c)
                        of = of_logit * value_of(queries, i, c)
                        if targets is not None:
                            bent = s if s > 0 else bend * s
                            of = of if s > 0 else bend * of
                            put(of_targets, i, c, value_of(of_targets, i, c) + of)
                            put(of_queries, i, c, value_of(of_queries, i, c) + of_logit * bent)
                        else:
                            put(of_queries, i, c, value_of(of_queries, i, c) + of_logit * s)
                        if features is not None:
                            if targets is None:
                                of += weight * value_of(gradient, i, c)
                            put(of_term, 0, c, of)
                if of_mix is not None:
                    for d in range(mix.shape[0]):
                        factor = kind(feature_of(features, numbers, loops, places[k], i, d))
                        for c in range(width):
                            put(of_mix, d, c, value_of(of_mix, d, c) + factor * value_of(of_term, 0, c))
            at, count = next_places(indices, at, indptr[i + 1], i, self_loops, near, places, False)


@kernel
def pair_stats_range(
    gradient: Any,
    out: Any,
    log_sum: Any,
    heads: int,
    head_columns: int,
    packed: Any,
    stats: Any,
    picked: Any,
    first: int,
) -> None:
    """For the rows from `first` on, or those that picked[first:] names, one for each row of `gradient`: what adjoints read.

    packed: gets the gradient, heads padded, in its storage type
    stats:  gets [log_sum, ⟨gradient, out⟩] of each head
    """
    columns = gradient.shape[1] // heads
    for k in range(len(gradient)):
        i = row_at(picked, first + k)
        for h in range(heads):
            begin, mean = h * head_columns, out.dtype.type(0)
            for c in range(columns):
                g = value_of(gradient, k, h * columns + c)
                mean += g * out[i, begin + c]
                put(packed, i, begin + c, g)
            for c in range(columns, head_columns):
                put(packed, i, begin + c, 0.0)
            stats[i, h] = log_sum[i, h]
            stats[i, heads + h] = mean
        for c in range(heads * head_columns, packed.shape[1]):
            put(packed, i, c, 0.0)

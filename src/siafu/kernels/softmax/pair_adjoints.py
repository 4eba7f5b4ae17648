"""Adjoints of softmax gathers of pairs (see `pairs`), with no row kept for an edge.

They make s_ij and a_ij again twice: over out-edges for what the sources get, over in-edges for what the targets and the
weights get.
"""

import math
from typing import Any

import numpy as np

from siafu.base.jit import fast_kernel, kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.tiles import ask_for, put, value_of
from siafu.kernels.softmax.attention import EDGE_BLOCK, keep_factor
from siafu.kernels.softmax.pair_terms import edge_logit, edge_match, edge_term, feature_of, next_places

_SOON = 4  # edges between asking for rows and reading them


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
                    z = edge_logit(
                        keys, targets, queries, features, term, j, i, begin, head_columns, bend, kind(0)
                    )
                    match = edge_match(
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
                    z = edge_logit(
                        keys, targets, queries, features, term, j, i, begin, head_columns, bend, kind(0)
                    )
                    match = edge_match(
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

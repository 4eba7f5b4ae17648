"""Softmax gathers whose logit is a function of both ends of an edge, with no row kept for an edge.

    s_ij = keys_j + targets_i + e_ij              e_ij = features_ij · mix
    z_ij = ⟨queries_i, leaky_relu(s_ij)⟩          for each head, over its columns
    out_i = Σ_j keep_ij · a_ij · value_j          a_ij = exp(z_ij - log_sum_i)

Additive attention (GATv2) has targets, one query for all vertices (a table whose rows lie in one place), and the keys
for values. Products (Transformer) have no targets, no leaky ReLU, and value_j = values_j + e_ij. Edges without features
have no e_ij.

The gather goes block by block with a running maximum, as `attention` does. Its adjoints are in `pair_adjoints`.
"""

import math
from typing import Any

import numpy as np

from siafu.base.jit import kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.emit import LANES, MAX_TILE
from siafu.kernels.llvm.tiles import accumulate, ask_for
from siafu.kernels.softmax.attention import EDGE_BLOCK, keep_factor, scale_head
from siafu.kernels.softmax.blocks import weigh
from siafu.kernels.softmax.pair_terms import count_rows, edge_logit, edge_term, feature_of, next_places


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
                    logits[h * EDGE_BLOCK + k] = edge_logit(
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

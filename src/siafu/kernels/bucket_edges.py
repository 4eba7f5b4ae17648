"""Edges put in the order in which buckets are added: those of a range of sources stand together, row by row."""

from typing import Any

import numpy as np

from siafu.base.jit import kernel


@kernel
def count_buckets(indptr: Any, indices: Any, at: Any, bounds: Any, counts: Any) -> None:
    """Count each row's edges from each range of sources.

    at:     [rows] each row's first edge that counts
    bounds: [ranges + 1] of the sources, which ascend within a row
    counts: [ranges, rows], to be filled
    """
    for i in range(len(at)):
        edge, end = at[i], indptr[i + 1]
        for p in range(len(bounds) - 1):
            low, high = edge, end
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < bounds[p + 1]:
                    low = middle + 1
                else:
                    high = middle
            counts[p, i] = low - edge
            edge = low


@kernel
def fill_buckets(
    indices: Any, weights: Any, at: Any, counts: Any, places: Any, out: Any, weighed: Any
) -> None:
    """Copy edges to their buckets.

    places:  [ranges] where each bucket begins in `out`; it moves on
    weights: of the edges, which go to `weighed`; None: they have none
    """
    for i in range(len(at)):
        edge = at[i]
        for p in range(len(places)):
            place, count = places[p], np.int64(counts[p, i])
            for k in range(count):
                out[place + k] = indices[edge + k]
                if weights is not None:
                    weighed[place + k] = weights[edge + k]
            places[p] += count
            edge += count

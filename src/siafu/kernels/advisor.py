"""Advisor: facts about edges and about this machine that choices between ways to gather rest on."""

import time
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.caches import cache_bytes
from siafu.kernels.hubs import HUB_EDGES, hub_rows
from siafu.kernels.rows import empty_table, zero_table
from siafu.kernels.sums import sum_range

_SHARE_OF_CACHE = 0.25  # rows that are certain to stay in a core's cache
_EDGES = 1 << 16  # that are timed: a few milliseconds
_DEGREE = 32  # edges of a row that is timed
_REPEATS = 3


class Degrees(NamedTuple):
    """How edges are shared among rows.

    mean, most: edges of a row
    top_share:  share of the edges that the hundredth part of the rows has which have most
    hubs:       rows with so many edges that they are summed in groups
    """

    mean: float
    most: int
    top_share: float
    hubs: int

    def __str__(self) -> str:
        found = (
            f"{self.mean:.1f} edges a vertex, {self.most:,} at most; the 1 % of the vertices with most edges "
            f"have {100 * self.top_share:.0f} % of them"
        )
        if self.hubs:
            found += f"; {self.hubs:,} with at least {HUB_EDGES:,} edges are summed in groups, over threads"
        return found


def degrees(indptr: NDArray[np.int64]) -> Degrees:
    """Of the rows of a CSR."""
    counts = np.diff(indptr)
    if not len(counts) or not indptr[-1]:
        return Degrees(0.0, 0, 0.0, 0)
    top = max(1, len(counts) // 100)
    largest = np.partition(counts, len(counts) - top)[len(counts) - top :]
    return Degrees(
        float(counts.mean()), int(counts.max()), float(largest.sum() / counts.sum()), len(hub_rows(indptr))
    )


@cache
def seconds_an_edge(row_bytes: int) -> float:
    """CPU seconds of one thread for an edge of a sum gather whose rows, so long, are in the core's own cache; measured."""
    columns = max(8, row_bytes // 4)
    sources = max(16, int(_SHARE_OF_CACHE * cache_bytes(2)) // row_bytes)
    rows, out = zero_table(sources, columns, np.float32), empty_table(_EDGES // _DEGREE, columns, np.float32)
    indptr = np.arange(0, _EDGES + 1, _DEGREE, dtype=np.int64)
    indices = np.random.default_rng(0).integers(0, sources, _EDGES, dtype=np.int32)
    best = np.inf
    for _ in range(_REPEATS):
        began = time.thread_time()
        sum_range(indptr, indices, None, rows, None, None, out, None, 0, len(out))
        best = min(best, time.thread_time() - began)
    return float(best) / _EDGES

"""Advisor: how gathers walk their edges, by facts about the edges and this machine, and by timing what facts do not tell.

Whatever it chooses, a gather has the same bits.
"""

import time
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.hardware.caches import cache_bytes
from siafu.base.threads import thread_count
from siafu.kernels.advice.findings import Finding, Findings
from siafu.kernels.advice.timed_choice import TimedChoice
from siafu.kernels.advice.trial_budget import TrialBudget
from siafu.kernels.blocking import far_block_size
from siafu.kernels.hubs import HUB_EDGES, hub_rows
from siafu.kernels.rows import empty_table, zero_table
from siafu.kernels.sums import sum_range

_SHARE_OF_CACHE = 0.25  # rows that are certain to stay in a core's cache
_EDGES = 1 << 16  # that are timed: a few milliseconds
_DEGREE = 32  # edges of a row that is timed
_REPEATS = 3
_PIECES = 4  # of a thread: the calls that a gather is cut into, as a rule
ONE_WALK = 0
"""The way to gather without blocks. Other ways are named by the number of sources in a block."""


class WalkShape(NamedTuple):
    """The edges of a gather on one server.

    rows, edges: of the walk, whether they are gathered for or not
    sources:     rows that edges may come from
    row_bytes:   of a row that is read
    share:       percent of the edges that are gathered along
    weighted:    whether edges have weights
    """

    rows: int
    edges: int
    sources: int
    row_bytes: int
    share: int = 100
    weighted: bool = False

    def __str__(self) -> str:
        some = "" if self.share == 100 else f"{self.share} % of "
        weights = ", weighted" if self.weighted else ""
        return f"{some}{self.edges} edges into {self.rows} rows, from {self.sources} of {self.row_bytes} bytes{weights}"

    @property
    def far_block_size(self) -> int | None:
        """Number of sources in a block for the cache that cores share; None: the rules say that such blocks do not pay."""
        taken, pieces = self.edges * self.share // 100, _PIECES * thread_count()
        return far_block_size(self.rows, taken, self.row_bytes, sources=self.sources, pieces=pieces)


class Advisor:
    """Chooses among ways to walk a gather's edges; what it times while gathers run is kept in findings.

    findings: of this graph on this machine
    order:    of the vertices, as findings name it; "": as they are numbered
    epochs:   of the run, of which trials may cost a share; None: they are not known
    """

    def __init__(self, findings: Findings, order: str = "", epochs: int | None = None) -> None:
        self._findings, self._order, self._budget = findings, order, TrialBudget(epochs)
        self._choices: dict[WalkShape, TimedChoice] = {}

    def walking(self, shape: WalkShape) -> TimedChoice:
        """How to gather along edges that are in no blocks for a core's own cache."""
        if shape not in self._choices:
            known, size = self._known(shape), shape.far_block_size
            ways = (ONE_WALK,) if size is None else (ONE_WALK, size)
            self._choices[shape] = TimedChoice(ways, None if known is None else known.way, self._budget)
        return self._choices[shape]

    def keep(self) -> None:
        """Keep what was found since."""
        new = {
            self._order + str(shape): Finding(choice.chosen, choice.seconds)
            for shape, choice in self._choices.items()
            if choice.chosen is not None and choice.seconds
        }
        if new:
            self._findings.found |= new
            self._findings.keep()

    def reasons(self) -> list[str]:
        """How gathers are walked that there was a choice for, and why: a sentence each."""
        return [self._said(shape, choice) for shape, choice in self._choices.items() if len(choice.ways) > 1]

    def _said(self, shape: WalkShape, choice: TimedChoice) -> str:
        size, shared = shape.sources * shape.row_bytes, cache_bytes(3)
        found = (
            f"gathers along {shape.edges * shape.share // 100:,} edges read rows of {shape.row_bytes} bytes from {size / 1e6:,.0f} MB, and "
            f"cores share a cache of {shared / 1e6:,.0f} MB"
        )
        known, block = self._known(shape), choice.ways[-1] * shape.row_bytes
        if choice.chosen is None:
            return f"{found}: one walk and blocks of {block / 1e6:,.0f} MB are timed in the first epochs, and the faster stays"
        told = (
            f"one walk, not blocks of {block / 1e6:,.0f} MB"
            if choice.chosen == ONE_WALK
            else f"blocks of {block / 1e6:,.0f} MB"
        )
        if known is None:
            return f"{found}: {told}"
        seconds = ", ".join(
            f"{'one walk' if way == ONE_WALK else 'blocks'} {value:.2g}"
            for way, value in sorted(known.seconds.items())
        )
        return f"{found}: {told}, as measured before (CPU seconds: {seconds})"

    def _known(self, shape: WalkShape) -> Finding | None:
        return self._findings.found.get(self._order + str(shape))


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

"""WalkedSum: sums in one walk along the edges, or in blocks for the cache that cores share, whichever is faster."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.kernels import Blocks, HubEdges, Table, sum_far_blocks_range, sum_range
from siafu.kernels.advice.advisor import ONE_WALK
from siafu.kernels.advice.timed_choice import TimedChoice
from siafu.server.edges import Walk

Ids = NDArray[np.int64]
Factors = NDArray[Any] | None


class WalkedSum:
    """Sums rows along the edges of a walk; hubs are left out.

    rows:        that are read, some columns of them
    hubs:        of the walk
    weights:     of the edges; None: every edge weighs 1
    self_weight: of the rows' self-loops; None: there are none besides the edges
    choice:      of the way
    blocks:      of the size that there is a choice for; None: there is none
    """

    def __init__(
        self,
        walk: Walk,
        rows: Table,
        hubs: HubEdges,
        weights: Factors,
        self_weight: Factors,
        choice: TimedChoice,
        blocks: Blocks | None,
    ) -> None:
        indptr, indices, _ = walk.edges
        self._edges, self._rows, self._hubs = (indptr, indices, weights), rows, hubs
        self._self_weight, self._choice, self._blocks = self_weight, choice, blocks

    def sum(self, scale: Factors, out: Table, picked: Ids | None, first: int, last: int) -> None:
        """Into the rows from `first` up to `last`, or those that picked[first:last] names."""
        piece, choice = (first, last), self._choice
        way, began = choice.way(piece), time.thread_time()
        if way == ONE_WALK or self._blocks is None:
            for low, high in self._hubs.between(first, last):
                sum_range(*self._edges, self._rows, self._self_weight, scale, out, picked, low, high)
        else:
            sum_far_blocks_range(
                *self._blocks, self._rows, self._self_weight, scale, out, picked, first, last
            )
        choice.told(piece, way, time.thread_time() - began)

    def compile(self, scale: Factors, out: Table, picked: Ids | None) -> None:
        """Compile what there is a choice for, so that no way is timed with that."""
        if self._blocks is not None:
            sums = self._rows, self._self_weight, scale, out
            sum_range(*self._edges, *sums, picked, 0, 0)
            sum_far_blocks_range(*self._blocks, *sums, picked, 0, 0)

"""Sum, Mean and GcnSum on a server: how they run, what they cost and hold."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import (
    MAX_TILE,
    Blocks,
    HubEdges,
    Table,
    add_messages,
    pack_range,
    sum_blocks_range,
    sum_hub,
)
from siafu.kernels.advice.advisor import ONE_WALK
from siafu.kernels.advice.timed_choice import TimedChoice
from siafu.nn.gathers.gather import Sum
from siafu.nn.tensors import storage
from siafu.server.costs.held_array import HeldArray
from siafu.server.edges import ServerEdges, Walk
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.early_gather import EarlySum, SumFactors
from siafu.server.gathers.edgewise.reduction import Reduction, RowIds, picked_rows
from siafu.server.gathers.gather_tables import ResultTable
from siafu.server.gathers.local_gather import (
    GatherGradients,
    LocalGather,
    Mask,
    Weights,
    checked,
    stored_size,
    sum_type,
    view,
)
from siafu.server.gathers.on_disk.disk_sum_gather import DiskSumGather
from siafu.server.gathers.walked_sum import WalkedSum


class _Slab(NamedTuple):
    """Columns that are summed together, their rows, and how: in blocks for a core's own cache, or without.

    Blocks are of one tile's columns. A walk takes all columns of a row before the next row: the second tile finds the pages of memory
    that the first has read from.
    """

    columns: slice
    rows: Table
    way: Blocks | WalkedSum


class _Direction(NamedTuple):
    """One direction of the gather.

    rows: the whole table that edges read
    hubs: rows that are summed apart
    """

    walk: Walk
    rows: Table
    slabs: list[_Slab]
    hubs: HubEdges


class SumGather(LocalGather):
    """out = post · (A + diag(self_weight)) · pre · x; rows travel with their factor, `pre` forth and `post` back."""

    def __init__(
        self,
        gather: Sum,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._width = width
        scaling = gather.scaling(server.graph, dtype)
        self._pre, self._post = server.own_part(scaling.pre), server.own_part(scaling.post)
        self._self_weight = server.own_part(scaling.self_weight)
        self._kind = np.dtype(sum_type(dtype))
        self._out = self._back = self._tables.result("sums", width, self._kind)
        stored = storage(self._kind, gather.precision)
        self._weighted = gather.weighted
        walks, tables = self._walks, self._tables
        self.forward_tables = [tables.source("rows", walks.forward.columns, width, stored)]
        self._forward = self._direction(walks.forward, self.forward_tables[0])
        if training:
            # What was gathered forward has been used up by then: its gradient has been sent.
            self._back = tables.result("gradients", width, self._kind, over=self._out)
            # Whoever sends gradients of these rows has heard from all that read the rows.
            (rows,), columns = self.forward_tables, walks.backward.columns
            self.backward_tables = [tables.source("gradients", columns, width, stored, over=rows)]
            self._backward = self._direction(walks.backward, self.backward_tables[0])
            self.early_backward = self._early(self._backward, self._back, self._pre, None)
            self._compile(self._backward, self._back, self._pre, None)
        self.gathered, self.returned = (self._out,), self._back
        self.early_forward = self._early(self._forward, self._out, self._post, self.needed)
        self._compile(self._forward, self._out, self._post, self.needed)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), self._pre, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        out, span = self._out.begin(first, last), self._walks.span(first, last)
        if self.early_forward is None or not self.early_forward.end(first, last):
            self._sum(out, self._forward, self._post, self.needed, *span)
        return view(out, first, last, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        pack_range(
            checked(gradient, end - begin, self._width),
            self._post,
            self.backward_tables[0],
            self.needed,
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        out = self._back.begin(first, last)
        if self.early_backward is None or not self.early_backward.end(first, last):
            self._sum(out, self._backward, self._pre, None, first, last)
        return GatherGradients((view(out, first, last, self._width),), {})

    def _sum(
        self,
        sums: Table,
        way: _Direction,
        scale: NDArray[Any] | None,
        picked: NDArray[np.int64] | None,
        first: int,
        last: int,
    ) -> None:
        for columns, rows, how in way.slabs:
            out = sums[:, columns]
            if isinstance(how, Blocks):
                sum_blocks_range(*how, rows, self._self_weight, scale, out, picked, first, last)
            else:
                how.sum(scale, out, picked, first, last)
        for hub in way.hubs.within(first, last):
            sum_hub(hub, way.hubs.indices, way.hubs.weights, way.rows, self._self_weight, scale, sums)

    def _early(
        self,
        way: _Direction,
        out: ResultTable,
        scale: NDArray[Any] | None,
        needed: NDArray[np.int64] | None,
    ) -> EarlySum | None:
        """Where edges are dense, blocks of sources are faster than an early start."""
        if not self._tables.results_stay or any(isinstance(each.way, Blocks) for each in way.slabs):
            return None
        weights = way.walk.weights(self._kind) if self._weighted else None
        factors = SumFactors(self._self_weight, scale)
        return EarlySum(way.walk, way.rows, out.table(), factors, weights, way.hubs, needed)

    def _direction(self, walk: Walk, table: Table) -> _Direction:
        weighed = self._kind if self._weighted else None
        self_loops = self._self_weight is None
        tiles = [slice(c, min(c + MAX_TILE, table.shape[1])) for c in range(0, table.shape[1], MAX_TILE)]
        blocks = [
            walk.blocks(_row_bytes(table[:, each], table), weighed, self_loops=self_loops) for each in tiles
        ]
        hubs = walk.hubs(weighed, self_loops=self_loops, blocked=None not in blocks)
        ways = list(zip(tiles, blocks, strict=True))
        slabs = [_Slab(each, table[:, each], found) for each, found in ways if found is not None]
        walked = [each for each, found in ways if found is None]
        if walked:  # at most the last tile is narrower, and so in blocks: these are neighbours
            columns = slice(walked[0].start, walked[-1].stop)
            slabs.append(_Slab(columns, table[:, columns], self._walked(walk, table[:, columns], hubs)))
        return _Direction(walk, table, slabs, hubs)

    def _walked(self, walk: Walk, rows: Table, hubs: HubEdges) -> WalkedSum:
        """Sums of edges that are in no blocks for a core's own cache."""
        weighed, self_loops = self._kind if self._weighted else None, self._self_weight is None
        weights = walk.weights(self._kind) if self._weighted else None
        choice, blocks, advisor = TimedChoice((ONE_WALK,)), None, self.server.advisor
        # Where rows are gathered a few at a time, hardly one of a block's is read again.
        if advisor is not None and self._tables.results_stay:
            choice = advisor.walking(walk.shape(_row_bytes(rows, rows), weighted=self._weighted))
        if choice.chosen != ONE_WALK:
            blocks = walk.in_blocks(choice.ways[-1], weighed, self_loops=self_loops)
        return WalkedSum(walk, rows, hubs, weights, self._self_weight, choice, blocks)

    def _compile(
        self, way: _Direction, out: ResultTable, scale: NDArray[Any] | None, needed: RowIds | None
    ) -> None:
        for columns, _, how in way.slabs:
            if isinstance(how, WalkedSum) and self._tables.results_stay:
                how.compile(scale, out.table()[:, columns], needed)

    def _results(self) -> list[ResultTable]:
        return [self._out, self._back]


def _row_bytes(rows: Table, table: Table) -> int:
    """Bytes of memory that reading a row of some columns of a table takes."""
    return int(max(min(rows.shape[1] * rows.itemsize, table.strides[0]), 64))


class SumOfMessages(Reduction):
    """Messages times their edges' weights, added up; times the target's factor."""

    def __init__(self, gather: Sum, server: ServerEdges, dtype: torch.dtype) -> None:
        self.scale = server.own_part(gather.scaling(server.graph, dtype).post)
        self.weighted = gather.weighted

    def reduce(
        self,
        indptr: NDArray[np.int64],
        picked: RowIds | None,
        first: int,
        last: int,
        messages: NDArray[Any],
        weight: NDArray[Any] | None,
        out: Table,
    ) -> None:
        add_messages(indptr, picked, first, last, messages, weight, self.scale, out)

    def send_back(
        self,
        gradient: NDArray[Any],
        out: ResultTable,
        tables: Sequence[Table],
        needed: RowIds | None,
        first: int,
    ) -> None:
        pack_range(gradient, self.scale, tables[0], needed, first)

    def of_messages(
        self,
        targets: RowIds,
        tables: Sequence[Table],
        weight: NDArray[Any] | None,
        width: int,
        messages: Callable[[], NDArray[Any]],
    ) -> torch.Tensor:
        found = picked_rows(tables[0], targets, width)
        if weight is not None:
            found *= torch.from_numpy(weight)[:, None]
        return found


class SumBehaviour(GatherBehaviour[Sum]):
    """Sum, and all that is a sum with factors."""

    gather = Sum
    in_memory = SumGather
    on_disk = DiskSumGather
    by_columns = True

    def held(self, gather: Sum, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        stored = stored_size(gather, itemsize)
        sums = HeldArray(
            "sums",
            "gathered rows, then gradients",
            "backward",
            width,
            itemsize,
            "own",
            "needed",
            "all",
            passes=True,
        )
        sent = HeldArray(
            "rows", "what edges gather", "gather", width, stored, "forward", "all", on_disk="source"
        )
        back = replace(
            sent,
            name="gradients",
            purpose="what edges gather back",
            rows="backward",
            forward=None,
            backward="needed",
        )
        return (sums, sent, replace(back, over=sent.name)) if training else (sums, sent)

    def reduction(self, gather: Sum, server: ServerEdges, width: int, dtype: torch.dtype) -> Reduction:
        return SumOfMessages(gather, server, dtype)

"""RowSlices: gathers by columns in which every column is gathered by itself: sums and maxima."""

from collections.abc import Sequence
from typing import Protocol

import torch

from siafu.kernels import Table
from siafu.server.edges import ServerEdges
from siafu.server.gathers.by_columns.column_gather import ColumnGather, Parts
from siafu.server.gathers.by_columns.column_space import ColumnSpace, slices_of
from siafu.server.gathers.gather_tables import ResultTable
from siafu.server.gathers.local_gather import GatherGradients, LocalGather, Mask, Weights, view


class MakeGather(Protocol):
    """Makes the same gather on other edges, for rows of another width."""

    def __call__(self, server: ServerEdges, width: int) -> LocalGather: ...


class RowSlices(ColumnGather):
    """Two gathers of one kind: of the owners' rows, which have no edges here, and of the slices, which have all.

    make:  makes them
    width: columns of the rows
    """

    def __init__(
        self, make: MakeGather, space: ColumnSpace, width: int, *, needed: Mask | None, training: bool
    ) -> None:
        self._cuts = slices_of(width, space.parts)
        cut = self._cuts[space.server]
        self._mine, self._width = cut.stop - cut.start, width
        super().__init__(space, needed, gathers=self._mine > 0)
        self._rows = rows = make(space.owned, width)
        self._slice = mine = make(space.whole, max(1, self._mine))  # a server may have no column
        self.resends = rows.resends
        self.parts_sent = self._parts(rows.forward_tables, mine.forward_tables)
        self.parts_made = self._parts(_tables(rows.gathered), _tables(mine.gathered))
        if training:
            self.parts_sent_back = self._parts(rows.backward_tables, mine.backward_tables)
            self.parts_returned = self._parts(_tables([rows.returned]), _tables([mine.returned]))

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        return view(self._rows.gathered[0].table(), first, last, self._width)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        (table,) = _tables([self._rows.returned])
        return GatherGradients((view(table, first, last, self._width),), {})

    @property
    def held_bytes(self) -> int:
        return self._rows.held_bytes + self._slice.held_bytes

    def _pack(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        self._rows.send(first, last, sent)

    def _gather(self, first: int, last: int, dropout: float, seed: int) -> None:
        self._slice.forward(first, last)

    def _pack_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        self._rows.send_back(first, last, gradient)

    def _gather_back(self, first: int, last: int, dropout: float, seed: int) -> None:
        self._slice.backward(first, last)

    def _parts(self, rows: Sequence[Table], slices: Sequence[Table]) -> Parts:
        owned = [[table[:, cut] for table in rows] for cut in self._cuts]
        return Parts(owned, [table[:, : self._mine] for table in slices])


def _tables(results: Sequence[ResultTable | None]) -> list[Table]:
    return [each.table() for each in results if each is not None]

"""ColumnGather: a gather laid out by columns: each server gathers some columns of all vertices' rows."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import Table, copy_rows
from siafu.server.edges import ServerEdges
from siafu.server.gathers.column_space import ColumnSpace, Ranges, slices_of
from siafu.server.gathers.gather_tables import ResultTable
from siafu.server.gathers.local_gather import GatherGradients, LocalGather, Mask, Weights, view
from siafu.server.scattered import Scattered

Ids = NDArray[np.int64]


class MakeGather(Protocol):
    """Makes the same gather on other edges, for rows of another width."""

    def __call__(self, server: ServerEdges, width: int) -> LocalGather: ...


class ColumnGather(LocalGather):
    """Rows go to all servers, each gets a slice of their columns; it gathers them along all edges; owners get theirs back.

        send      → (slices travel)  → gather_slice      → (slices travel back) → forward
        send_back → (slices travel)  → gather_slice_back → (slices travel back) → backward

    Whoever gathers reads rows of all vertices, and whoever reads what was gathered waits for all servers: gradients are sent
    when no one reads rows any more, and may take their place. Rows are added in the order of the vertices' ids, whoever owns them: the result has
    the bits of a single server's, whatever the partition.

    make:  makes the gather of the owners' rows, which have no edges here, and of the slices, which have all
    width: columns of the rows
    """

    def __init__(self, make: MakeGather, space: ColumnSpace, width: int, *, needed: Mask | None) -> None:
        super().__init__(space.owned, needed)
        self._space, self._width, self._mask = space, width, needed
        self._cuts = slices_of(width, space.parts)
        self._cut = self._cuts[space.server]
        self._mine = self._cut.stop - self._cut.start
        self._rows = make(space.owned, width)
        self._slice = make(space.whole, max(1, self._mine))  # a server may have no column
        self.resends = self._rows.resends

    @property
    def sent_forward(self) -> Scattered:
        return self._to_slices(None, self._rows.forward_tables, self._slice.forward_tables)

    @property
    def sent_backward(self) -> Scattered:
        return self._to_slices(self._mask, self._rows.backward_tables, self._slice.backward_tables)

    @property
    def slices_forward(self) -> Scattered:
        """Rows that go to other servers after `gather_slice`."""
        made, rows = _tables(self._slice.gathered), _tables(self._rows.gathered)
        return self._to_owners(self._mask, made, rows, self._space.forward)

    @property
    def slices_backward(self) -> Scattered:
        """Rows that go to other servers after `gather_slice_back`."""
        made, rows = _tables([self._slice.returned]), _tables([self._rows.returned])
        return self._to_owners(None, made, rows, self._space.backward)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        self._rows.send(first, last, sent)
        own = np.arange(first, last)
        self._keep_slice(self._rows.forward_tables, self._slice.forward_tables, own)

    def gather_slice(self, share: int) -> None:
        """Gather this server's columns for a share of all vertices."""
        first, last = self._space.forward[share]
        if self._mine:
            self._slice.forward(first, last)
            self._keep_own(
                _tables(self._slice.gathered), _tables(self._rows.gathered), self._mask, first, last
            )

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        return view(self._rows.gathered[0].table(), first, last, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        self._rows.send_back(first, last, gradient)
        begin, end = self.walks.span(first, last)
        own = np.arange(begin, end) if self.needed is None else self.needed[begin:end]
        self._keep_slice(self._rows.backward_tables, self._slice.backward_tables, own)

    def gather_slice_back(self, share: int) -> None:
        """Gather the gradients of this server's columns for a share of all vertices."""
        first, last = self._space.backward[share]
        if self._mine:
            self._slice.backward(first, last)
            self._keep_own(_tables([self._slice.returned]), _tables([self._rows.returned]), None, first, last)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        (table,) = _tables([self._rows.returned])
        return GatherGradients((view(table, first, last, self._width),), {})

    @property
    def held_bytes(self) -> int:
        return self._rows.held_bytes + self._slice.held_bytes

    def _to_slices(self, mask: Mask | None, rows: Sequence[Table], slices: Sequence[Table]) -> Scattered:
        sent = [[table[:, cut] for table in rows] for cut in self._cuts]
        received = [table[:, : self._mine] for table in slices]
        return Scattered(self._space.to_slices(mask), sent, [received] * self._space.parts)

    def _to_owners(
        self, mask: Mask | None, slices: Sequence[Table], rows: Sequence[Table], bounds: Ranges
    ) -> Scattered:
        sent = [table[:, : self._mine] for table in slices]
        received = [[table[:, cut] for table in rows] for cut in self._cuts]
        return Scattered(self._space.to_owners(mask), [sent] * self._space.parts, received, bounds)

    def _keep_slice(self, rows: Sequence[Table], slices: Sequence[Table], own: Ids) -> None:
        """What this server sends to itself."""
        for source, target in zip(rows, slices, strict=True):
            copy_rows(source[:, self._cut], own, target, self._space.vertices[own])

    def _keep_own(
        self, slices: Sequence[Table], rows: Sequence[Table], mask: Mask | None, first: int, last: int
    ) -> None:
        """What this server gathers for its own vertices among those of a share."""
        begin, end = np.searchsorted(self._space.vertices, (first, last))
        own = np.arange(begin, end)
        if mask is not None:
            own = own[mask[self._space.vertices[own]]]
        for source, target in zip(slices, rows, strict=True):
            copy_rows(source[:, : self._mine], self._space.vertices[own], target[:, self._cut], own)


def _tables(results: Sequence[ResultTable | None]) -> list[Table]:
    return [each.table() for each in results if each is not None]

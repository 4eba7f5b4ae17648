"""ColumnGather: a gather laid out by columns: each server gathers some columns of all vertices' rows."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import Table, copy_rows
from siafu.server.gathers.by_columns.column_space import ColumnSpace
from siafu.server.gathers.local_gather import LocalGather, Mask
from siafu.server.scattered import Scattered

Ids = NDArray[np.int64]


class Parts(NamedTuple):
    """Tables that servers exchange: of own rows, and of slices.

    owned:  for each server, what tables of own rows have of its slice
    sliced: tables of this server's own slice: as many, as wide, for all vertices
    """

    owned: Sequence[Sequence[Table]]
    sliced: Sequence[Table]


class ColumnGather(LocalGather):
    """Rows go to all servers, each gets a slice of their columns; it gathers them along all edges; owners get theirs back.

        send      → (slices travel)  → gather_slice      → (slices travel back) → forward
        send_back → (slices travel)  → gather_slice_back → (slices travel back) → backward

    Whoever gathers reads rows of all vertices, and whoever reads what was gathered waits for all servers: gradients are sent
    when no one reads rows any more, and may take their place. Rows are added in the order of the vertices' ids, whoever owns them: the result has
    the bits of a single server's, whatever the partition.

    parts_sent, parts_made:          what goes to the slices, and what they make of it
    parts_sent_back, parts_returned: the same on the way back, where there is one
    """

    parts_sent: Parts
    parts_made: Parts
    parts_sent_back: Parts
    parts_returned: Parts

    def __init__(self, space: ColumnSpace, needed: Mask | None, *, gathers: bool) -> None:
        """gathers: whether this server has a column at all"""
        super().__init__(space.owned, needed)
        self._space, self._mask, self._gathers = space, needed, gathers

    @property
    def sent_forward(self) -> Scattered:
        return self._to_slices(None, self.parts_sent)

    @property
    def sent_backward(self) -> Scattered:
        return self._to_slices(self._mask, self.parts_sent_back)

    @property
    def slices_forward(self) -> Scattered:
        """Rows that go to other servers after `gather_slice`."""
        return self._to_owners(self._mask, self.parts_made, self._space.forward)

    @property
    def slices_backward(self) -> Scattered:
        """Rows that go to other servers after `gather_slice_back`."""
        return self._to_owners(None, self.parts_returned, self._space.backward)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        self._pack(first, last, sent)
        self._keep_slice(self.parts_sent, np.arange(first, last))

    def gather_slice(self, share: int, *, dropout: float = 0.0, seed: int = 0) -> None:
        """Gather this server's columns for a share of all vertices; dropout, seed: of attention."""
        first, last = self._space.forward[share]
        if self._gathers:
            self._gather(first, last, dropout, seed)
            self._keep_own(self.parts_made, self._mask, first, last)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        self._pack_back(first, last, gradient)
        begin, end = self.walks.span(first, last)
        own = np.arange(begin, end) if self.needed is None else self.needed[begin:end]
        self._keep_slice(self.parts_sent_back, own)

    def gather_slice_back(self, share: int, *, dropout: float = 0.0, seed: int = 0) -> None:
        """Gather the gradients of this server's columns for a share of all vertices."""
        first, last = self._space.backward[share]
        if self._gathers:
            self._gather_back(first, last, dropout, seed)
            self._keep_own(self.parts_returned, None, first, last)

    @abstractmethod
    def _pack(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        """Put what a tensor phase made for own rows into the tables that are sent."""

    @abstractmethod
    def _gather(self, first: int, last: int, dropout: float, seed: int) -> None:
        """Gather this server's columns for some of all vertices."""

    @abstractmethod
    def _pack_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        """`_pack` of gradients, of own rows that are needed."""

    @abstractmethod
    def _gather_back(self, first: int, last: int, dropout: float, seed: int) -> None:
        """The adjoint of `_gather`."""

    def _to_slices(self, mask: Mask | None, parts: Parts) -> Scattered:
        return Scattered(self._space.to_slices(mask), parts.owned, [parts.sliced] * self._space.parts)

    def _to_owners(self, mask: Mask | None, parts: Parts, bounds: Sequence[tuple[int, int]]) -> Scattered:
        exchange = self._space.to_owners(mask)
        return Scattered(exchange, [parts.sliced] * self._space.parts, parts.owned, bounds)

    def _keep_slice(self, parts: Parts, own: Ids) -> None:
        """Copy the share that this server sends to itself."""
        for source, target in zip(parts.owned[self._space.server], parts.sliced, strict=True):
            copy_rows(source, own, target, self._space.vertices[own])

    def _keep_own(self, parts: Parts, mask: Mask | None, first: int, last: int) -> None:
        """Copy the gathered columns of its own vertices among those of a share."""
        begin, end = np.searchsorted(self._space.vertices, (first, last))
        own = np.arange(begin, end)
        if mask is not None:
            own = own[mask[self._space.vertices[own]]]
        for source, target in zip(parts.sliced, parts.owned[self._space.server], strict=True):
            copy_rows(source, self._space.vertices[own], target, own)

"""LocalGather: one graph phase on one server, a range of rows at a time, in the calling thread."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from siafu.kernels import Table
from siafu.nn.gathers.gather import Gather
from siafu.nn.tensors import as_rows, is_halved
from siafu.server.edges import Exchange, ServerEdges, Walk, Walks
from siafu.server.gathers.early_gather import EarlyGather
from siafu.server.gathers.gather_tables import HeldTables, ResultTable
from siafu.server.memory.disk_share import DiskShare
from siafu.server.scattered import Scattered
from siafu.tables import GhostedTable

Mask = NDArray[np.bool_]
Weights = Mapping[str, torch.Tensor]


class GatherGradients(NamedTuple):
    """What the backward pass of a graph phase gives for a range of rows.

    sent:    of each tensor that `send` took, for those rows
    weights: by name, this range's share of the gradients of an edge function's parameters
    """

    sent: tuple[torch.Tensor, ...]
    weights: dict[str, torch.Tensor]


class LocalGather(ABC):
    """A gather over one server's edges, and back.

        send       → (rows travel to the servers that need them) → forward
        send_back  → (rows travel again, the other way)          → backward

    Each method is for own rows from `first` up to `last`, and runs in the calling thread; ranges that do not overlap
    may be worked on at the same time. Rows go to other servers by being copied from one server's tables to another's,
    as `forward_exchange` and `backward_exchange` list them. What is returned shares memory with tables that are kept:
    it is to be read only, and holds until `forward` or `backward` is called for the same rows again; `backward` may
    overwrite what `forward` gave. Where the server's tables are `PassingTables` it holds only until the calling thread
    gathers again; then a gather that `resends` must have gathered a range anew before `send_back` is called for rows of it.

    forward_tables:  own rows, then ghosts; what travels along the edges
    backward_tables: own rows, then ghosts; what travels against them
    forward_on_disk, backward_on_disk: the same, for tables on disk
    needed:          own rows that somebody reads of what is gathered, ascending; None: all. Other rows are not
                     gathered: what `forward` gives for them means nothing, and no gradient comes from them.
    resends:         `send_back` reads what `forward` made
    weight_names:    the model's parameters that it reads, in its gather's order; learnt: those that get gradients
    early_forward, early_backward: for ranges that are begun before all rows are there; None: they wait
    gathered:        what `forward` makes: the gathered rows, and what `send_back` reads besides; (): nobody asks for them
    returned:        what `backward` makes; None likewise
    """

    resends: bool = False
    early_forward: EarlyGather[Any] | None = None
    early_backward: EarlyGather[Any] | None = None
    gathered: tuple[ResultTable, ...] = ()
    returned: ResultTable | None = None

    def __init__(self, server: ServerEdges, needed: Mask | None) -> None:
        self.server = server
        self._walks = server.walks(needed)
        self._tables = server.tables or HeldTables(server.own)
        self.weight_names: tuple[str, ...] = ()
        self.learnt: tuple[str, ...] = ()
        self.forward_tables: list[Table] = []
        self.backward_tables: list[Table] = []
        self.forward_on_disk: list[GhostedTable] = []
        self.backward_on_disk: list[GhostedTable] = []

    @property
    def walks(self) -> Walks:
        return self._walks

    @property
    def needed(self) -> NDArray[np.int64] | None:
        return self._walks.needed

    @property
    def forward_exchange(self) -> Exchange:
        return self._walks.forward.exchange

    @property
    def backward_exchange(self) -> Exchange:
        return self._walks.backward.exchange

    @property
    def sent_forward(self) -> Scattered:
        """Rows that go to other servers after `send`."""
        return Scattered.whole(self.forward_exchange, [*self.forward_on_disk, *self.forward_tables])

    @property
    def sent_backward(self) -> Scattered:
        """Rows that go to other servers after `send_back`."""
        return Scattered.whole(self.backward_exchange, [*self.backward_on_disk, *self.backward_tables])

    @abstractmethod
    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        """Put what a tensor phase made for these rows into the forward tables."""

    @abstractmethod
    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        """The gathered rows [last - first, width].

        dropout, seed: of attention; weights: an edge function's parameters. The backward pass must get the same.
        """

    @abstractmethod
    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        """Put the gradient of the gathered rows, those that are needed and no others, into the backward tables."""

    @abstractmethod
    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        """The gradients of what `send` took for these rows."""

    def begin_anew(self) -> None:
        """Forget what calls have left for others: the run goes back. None may run."""
        for early in (self.early_forward, self.early_backward):
            if early is not None:
                early.forget()

    @property
    def held_bytes(self) -> int:
        """Memory that the phase's own arrays take, apart from the edges."""
        arrays = {id(each): each for each in (*self.forward_tables, *self.backward_tables, *self._kept())}
        results = {id(each): each.held_bytes for each in self._results()}
        return sum(len(array) * array.strides[0] for array in arrays.values()) + sum(results.values())

    def _sources(self, disk: DiskShare, walk: Walk, columns: int, dtype: DTypeLike) -> GhostedTable:
        """A table on disk for rows that edges of a walk read."""
        return disk.sources(walk.columns, self.server.own, walk.received, columns, dtype)

    def _results(self) -> Sequence[ResultTable]:
        """Rows that it makes."""
        return ()

    def _kept(self) -> list[NDArray[Any]]:
        """The arrays that are neither tables nor results."""
        return []


def sum_type(dtype: torch.dtype) -> type[np.float32] | type[np.float64]:
    """What rows of a tensor type are summed in."""
    return np.float64 if dtype == torch.float64 else np.float32


def stored_size(gather: Gather, itemsize: int) -> int:
    """Bytes of a number as it travels; itemsize: of one that is summed. See `storage` in `siafu.nn.tensors`."""
    return 2 if is_halved(gather.precision) and itemsize == 4 else itemsize


def checked(tensor: torch.Tensor, rows: int, columns: int) -> NDArray[Any]:
    """The tensor as NumPy's array, sharing its memory. Kernels check no bound: its shape must be this one."""
    if tensor.shape != (rows, columns):
        raise ValueError(f"a graph phase got rows of shape {list(tensor.shape)}, not {[rows, columns]}")
    return as_rows(tensor)


def view(table: NDArray[Any], first: int, last: int, columns: int) -> torch.Tensor:
    """Rows of a table without its spare columns."""
    return torch.from_numpy(table[first:last, :columns])

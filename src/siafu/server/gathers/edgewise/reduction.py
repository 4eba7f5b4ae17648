"""Reduction: how the messages of a vertex's edges become one row, and back, on one server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import Table
from siafu.server.gathers.gather_tables import ResultTable

RowIds = NDArray[np.int64]


class Reduction(ABC):
    """What `EdgeGather` does with messages.

    weighted: whether edge weights count
    results:  what it makes besides the reduced rows; `send_back` reads it
    tables:   how many backward tables it needs besides that of the messages' gradients, as wide as messages
    scale:    what each row is multiplied by at the end; None: 1
    ties:     how many messages reach each maximum; None: messages are added up
    """

    weighted: bool = False
    results: Sequence[ResultTable] = ()
    tables: int = 0
    scale: NDArray[Any] | None = None
    ties: ResultTable | None = None

    def begin(self, first: int, last: int) -> None:  # noqa: B027  (a sum makes nothing besides)
        """The calling thread will reduce the messages of the rows from `first` up to `last`."""

    @abstractmethod
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
        """Make the rows first:last of `picked`, of their edges' messages; weight: of each edge."""

    @abstractmethod
    def send_back(
        self,
        gradient: NDArray[Any],
        out: ResultTable,
        tables: Sequence[Table],
        needed: RowIds | None,
        first: int,
    ) -> None:
        """Put into the backward tables what the messages' gradients are made of; out: the reduced rows."""

    @abstractmethod
    def of_messages(
        self,
        targets: RowIds,
        tables: Sequence[Table],
        weight: NDArray[Any] | None,
        width: int,
        messages: Callable[[], NDArray[Any]],
    ) -> torch.Tensor:
        """The gradients of some edges' messages; messages: makes them again."""


def picked_rows(table: Table, ids: RowIds, columns: int) -> torch.Tensor:
    """A copy of the rows that `ids` names."""
    return torch.from_numpy(table)[:, :columns].index_select(0, torch.from_numpy(ids))

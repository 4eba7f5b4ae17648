"""Scattered: rows that go to other servers after a task: which, from which tables, and into which."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from siafu.server.edges import Exchange
from siafu.server.rows.sent_rows import SentTable

_Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Tables of a stage whose rows go to other servers, and those that take the rows of others.

    exchange: which rows go, and where they are put
    sent:     for each server, the tables that its rows are taken from
    received: for each server, the tables that its rows are put into: as many, as wide
    bounds:   for each interval of this server, the rows of the tables that it makes; None: its own vertices'
    """

    exchange: Exchange
    sent: Sequence[Sequence[SentTable]]
    received: Sequence[Sequence[SentTable]]
    bounds: Sequence[tuple[int, int]] | None = None

    @classmethod
    def whole(cls, exchange: Exchange, tables: Sequence[SentTable]) -> "Scattered":
        """Whole rows, from tables to the same tables of others."""
        every = (tables,) * (len(exchange.send.starts) - 1)
        return cls(exchange, every, every)

    def taken(self, to: int, made: tuple[int, int]) -> Iterator[tuple[SentTable, _Rows, slice]]:
        """For each table: which rows of it another server needs, and which of those lie in `made`."""
        rows = self.exchange.send[to]
        first, last = np.searchsorted(rows, made)
        for table in self.sent[to]:
            yield table, rows, slice(int(first), int(last))

    def put(self, sender: int) -> Iterator[tuple[SentTable, _Rows]]:
        """For each table: where the rows of another server go."""
        for table in self.received[sender]:
            yield table, self.exchange.receive[sender]

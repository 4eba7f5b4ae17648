"""Relations of several servers: each trains with a copy and sends what it changed; the driver adds the changes up.

Every state names nearly every relation, so they cannot be divided. They are small, and Adagrad's sums of squares add up as gradients do:
sent every few batches, changes are what a server with asynchronous updates would have applied.
"""

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.servers.lock_events import Lease
from siafu.embedding.steps.row_updates import RowOptimizer

Changes = dict[str, NDArray[np.float32]]


def relation_tables(relations: RowOptimizer) -> Changes:
    """The tables that travel, by name."""
    return {"relations": relations.table} | {
        f"moment{k}": moment for k, moment in enumerate(relations.moments)
    }


class RelationLedger:
    """The relations, as the driver has them: changes of a lease that is abandoned are taken back.

    relations: vectors and sums of squares, with the changes of all leases under way
    """

    def __init__(self, relations: RowOptimizer) -> None:
        self.relations = relations
        self._open: dict[Lease, Changes] = {}
        self._numbers: dict[Lease, int] = {}

    def begin(self, lease: Lease) -> None:
        """A lease is handed out."""
        tables = relation_tables(self.relations)
        self._open.setdefault(lease, {name: np.zeros_like(table) for name, table in tables.items()})
        self._numbers.setdefault(lease, -1)

    def add(self, lease: Lease, number: int, changes: Mapping[str, Any]) -> None:
        """Add changes, once; those of a lease that is over are void."""
        if lease not in self._open or number <= self._numbers[lease]:
            return
        self._numbers[lease] = number
        for name, table in relation_tables(self.relations).items():
            change = np.asarray(changes[name])
            table += change
            self._open[lease][name] += change

    def accept(self, lease: Lease) -> None:
        """The lease's changes stay."""
        self._open.pop(lease, None)
        self._numbers.pop(lease, None)

    def abandon(self, lease: Lease) -> None:
        """Take the lease's changes back."""
        self._numbers.pop(lease, None)
        for name, change in self._open.pop(lease, {}).items():
            table = relation_tables(self.relations)[name]
            table -= change
            if name != "relations":
                np.maximum(table, 0, out=table)  # sums of squares: what rounding leaves is no square


class RelationCopy:
    """A server's copy of the relations. Batches change its tables under `lock`, which is theirs."""

    def __init__(self, relations: RowOptimizer, lock: Any) -> None:
        self._tables = relation_tables(relations)
        self._lock = lock
        self._sent = {name: table.copy() for name, table in self._tables.items()}
        self._guard = Lock()

    def reset(self, tables: Mapping[str, Any]) -> None:
        """Begin a lease with the driver's tables."""
        with self._guard, self._lock:
            for name, table in self._tables.items():
                table[:] = tables[name]
                self._sent[name][:] = table

    def changes(self) -> Changes:
        """Changes since the last call."""
        with self._guard, self._lock:
            found = {name: table - self._sent[name] for name, table in self._tables.items()}
            for name, table in self._tables.items():
                self._sent[name][:] = table
        return found

    def refresh(self, tables: Mapping[str, Any]) -> None:
        """Take the driver's tables, which have all that was sent; what changed since is added."""
        with self._guard, self._lock:
            for name, table in self._tables.items():
                since = table - self._sent[name]
                self._sent[name][:] = tables[name]
                table[:] = self._sent[name] + since

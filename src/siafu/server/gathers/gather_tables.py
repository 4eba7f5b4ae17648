"""GatherTables: where a gather's rows live. Source rows are read through edges; results are what a gather makes of them."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from siafu.base.threads import PerThread
from siafu.kernels import Table, padded, window, zero_table
from siafu.server.memory.disk_share import DiskShare


class ResultTable(ABC):
    """Rows that a gather makes for own vertices, a range of them at a time. Rows are numbered as the server's own rows are."""

    @abstractmethod
    def begin(self, first: int, last: int) -> Table:
        """Where the calling thread may put the rows from `first` up to `last`; no other row may be touched."""

    @abstractmethod
    def table(self) -> Table:
        """Where the rows of the range are that the calling thread began last."""

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Memory that it takes for all own rows."""


class GatherTables(ABC):
    """Makes the tables of one gather. `LocalGather` asks for all of them when it is made.

    results_stay: until they are made anew, in one place
    """

    results_stay: bool = False

    @abstractmethod
    def source(
        self, name: str, rows: int, columns: int, dtype: DTypeLike, *, over: Table | None = None
    ) -> Table:
        """For rows that travel along the edges, own ones and then ghosts. Rows that never travel are zeros, or mean nothing.

        name: unique in its gather
        over: a table whose rows nobody reads any more when these are sent: both may be in one place, if the gather before
              the sending phase is not the last of a pass
        """

    @abstractmethod
    def result(
        self, name: str, columns: int, dtype: DTypeLike, *, over: ResultTable | None = None
    ) -> ResultTable:
        """For rows that the gather makes.

        name: unique in its gather
        over: a result whose rows are used up when these are made: both may be in one place
        """


class HeldTables(GatherTables):
    """Every table is held for all own rows: what is gathered stays until it is gathered again.

    own:      how many rows
    known:    the tables of another gather by name, which this one uses and adds to; the two never run at a time
    in_place: whether source rows may take the place of others
    """

    results_stay = True

    def __init__(self, own: int, known: dict[str, Table] | None = None, *, in_place: bool = False) -> None:
        self._own, self._in_place = own, in_place
        self._known = {} if known is None else known

    def source(
        self, name: str, rows: int, columns: int, dtype: DTypeLike, *, over: Table | None = None
    ) -> Table:
        if self._in_place and over is not None and _fits(over, rows, columns, dtype):
            return over
        return self._table(name, rows, columns, dtype)

    def result(
        self, name: str, columns: int, dtype: DTypeLike, *, over: ResultTable | None = None
    ) -> ResultTable:
        return over or _HeldResult(self._table(f"result {name}", self._own, columns, dtype))

    def _table(self, name: str, rows: int, columns: int, dtype: DTypeLike) -> Table:
        known = self._known.get(name)
        if known is None or not _fits(known, rows, columns, dtype):
            known = self._known[name] = zero_table(rows, columns, dtype)
        return known


def _fits(table: Table, rows: int, columns: int, dtype: DTypeLike) -> bool:
    return table.shape == (rows, padded(columns)) and table.dtype == np.dtype(dtype)


class _HeldResult(ResultTable):
    def __init__(self, table: Table) -> None:
        self._table = table

    def begin(self, first: int, last: int) -> Table:
        return self._table

    def table(self) -> Table:
        return self._table

    @property
    def held_bytes(self) -> int:
        return len(self._table) * self._table.strides[0]


class ThreadBuffers:
    """Buffers of the threads: what a task makes and uses up itself. Gathers that never run in one task share them."""

    def __init__(self) -> None:
        self._buffers = PerThread()

    def rows(self, name: str, count: int, columns: int, dtype: DTypeLike) -> Table:
        """The calling thread's table of that name, with at least so many rows; what is in it means nothing."""
        tables: dict[Any, Table] = self._buffers.values
        key = name, columns, np.dtype(dtype)
        if key not in tables or len(tables[key]) < count:
            tables[key] = zero_table(count, columns, dtype)
        return tables[key]


class PassingTables(HeldTables):
    """Results have no table: they are there until the calling thread gathers the next range.

    scratch: the server's
    prefix:  tells gathers that run in one task apart
    """

    results_stay = False

    def __init__(
        self,
        own: int,
        scratch: ThreadBuffers,
        prefix: str,
        known: dict[str, Table] | None = None,
        *,
        in_place: bool = False,
    ) -> None:
        super().__init__(own, known, in_place=in_place)
        self._scratch, self._prefix = scratch, prefix

    def result(
        self, name: str, columns: int, dtype: DTypeLike, *, over: ResultTable | None = None
    ) -> ResultTable:
        return _PassingResult(self._scratch, f"{self._prefix} {name}", columns, dtype)


class _PassingResult(ResultTable):
    held_bytes = 0

    def __init__(self, scratch: ThreadBuffers, name: str, columns: int, dtype: DTypeLike) -> None:
        self._scratch, self._name, self._columns, self._dtype = scratch, name, columns, dtype
        self._begun = PerThread()

    def begin(self, first: int, last: int) -> Table:
        rows = self._scratch.rows(self._name, last - first, self._columns, self._dtype)
        found = self._begun.values["table"] = window(rows, first, last)
        return found

    def table(self) -> Table:
        found: Table = self._begun.values["table"]
        return found


class DiskTables(PassingTables):
    """The same, for gathers that can read their sources from disk; others have them in memory."""

    def __init__(self, own: int, scratch: ThreadBuffers, prefix: str, disk: DiskShare) -> None:
        super().__init__(own, scratch, prefix)
        self.disk = disk

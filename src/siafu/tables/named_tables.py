"""NamedTables: tables on disk by name, made when the first row of one comes."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import DTypeLike

from siafu.kernels import Table
from siafu.tables.disk_table import DiskTable
from siafu.tables.page_pool import lent_buffer
from siafu.tables.scratch_directory import ScratchDirectory
from siafu.tables.write_behind import WriteBehind

ComingRows = Future[Table]
"""Rows that are being read."""

_READERS = 4  # blocks of several tables at a time: one after the other, each is short enough to leave a fast disk idle


class NamedTables:
    """Tables of equally many rows. Rows are written behind, and read now or ahead; any thread may do so.

    rows: of each table
    """

    def __init__(self, scratch: ScratchDirectory, writer: WriteBehind, rows: int) -> None:
        self._scratch, self._writer, self._rows = scratch, writer, rows
        self._tables: dict[str, DiskTable] = {}
        self._lock = threading.Lock()
        self._ahead = ThreadPoolExecutor(_READERS, thread_name_prefix="siafu-ahead")

    def write(self, name: str, first: int, values: Table) -> None:
        """Write rows, which are copied, from `first` on."""
        table = self._table(name, values.shape[1], values.dtype)
        buffer = self._writer.buffer(table, first, len(values))
        buffer[:, : values.shape[1]] = values
        self._writer.put(table, first, buffer)

    def read(self, name: str, first: int, last: int) -> Table:
        """Rows first:last, with all that was written before, side by side."""
        table = self._tables[name]
        self._writer.flush(table, first, last)
        rows = table.read(first, last, lent_buffer(table.buffer_bytes(last - first)))
        return np.ascontiguousarray(rows[:, : table.columns])

    def waiting(self) -> AbstractContextManager[None]:
        """While a thread that computes waits for rows."""
        return self._scratch.traffic.waiting()

    def read_ahead(self, name: str, first: int, last: int) -> ComingRows:
        """The same, by a thread of its own."""
        return self._ahead.submit(self.read, name, first, last)

    def _table(self, name: str, columns: int, dtype: DTypeLike) -> DiskTable:
        with self._lock:
            if name not in self._tables:
                self._tables[name] = DiskTable(self._scratch, self._rows, columns, dtype)
            return self._tables[name]

"""GhostedTable: a server's own rows on disk, and after them copies of other servers' rows, its ghosts."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.kernels import Table, padded, place_rows, taken_rows
from siafu.tables.disk_table import DiskTable
from siafu.tables.page_pool import lent_buffer
from siafu.tables.row_table import RowTable
from siafu.tables.scratch_directory import ScratchDirectory
from siafu.tables.write_behind import WriteBehind

Ids = NDArray[np.int64]

AT_ONCE = 4 << 20
"""Bytes of rows that are read or written at a time."""
_GAP = 64 << 10  # bytes of unwanted rows that are read rather than left out


class GhostedTable(RowTable):
    """Rows in one file for the server itself, and one for each server that sends ghosts.

    Ghosts of several senders are interleaved. In its file a sender's rows lie as they come: a range of them is written at once, and
    a range of the table is read as one range of each file and put in order.

    own:      number of own rows, which come first
    received: from each server, where its rows are in the table, ascending; a ghost that nobody sends means nothing
    """

    def __init__(
        self,
        scratch: ScratchDirectory,
        writer: WriteBehind,
        rows: int,
        own: int,
        received: Sequence[Ids],
        columns: int,
        dtype: DTypeLike,
    ) -> None:
        super().__init__(rows, columns, dtype)
        self._own, self._writer, self._received = DiskTable(scratch, own, columns, dtype), writer, received
        self._ghosts = [DiskTable(scratch, len(slots), columns, dtype) for slots in received]

    def write(self, first: int, rows: Table) -> None:
        self._own.write(first, rows)

    def write_together(self, first: int, pieces: Sequence[Table]) -> None:
        self._own.write_together(first, pieces)

    def read(self, first: int, last: int, buffer: NDArray[np.uint8]) -> Table:
        self._check(first, last)
        own = self._own.rows
        if last <= own:
            return self._own.read(first, last, buffer)
        kept = self._own.read(first, own, buffer) if first < own else None
        offset = 0 if kept is None else kept.ctypes.data - buffer.ctypes.data
        found = self.view(buffer[offset:], last - first)
        for slots, ghosts in zip(self._received, self._ghosts, strict=True):
            begin, end = np.searchsorted(slots, (first, last))
            for low, high in self._stretches(int(begin), int(end)):
                rows = ghosts.read(low, high, lent_buffer(ghosts.buffer_bytes(high - low)))
                place_rows(rows, found, slots[low:high] - first)
        return found

    def waiting(self, *, all_threads: bool = False) -> AbstractContextManager[None]:
        return self._own.waiting(all_threads=all_threads)

    def taken(self, rows: Ids) -> Table:
        """A copy of some own rows, by ascending numbers, with all that was written before."""
        self._writer.flush(self)
        found = np.empty((len(rows), padded(self.columns)), self.dtype)
        apart = np.flatnonzero(np.diff(rows) * self.row_bytes > _GAP) + 1
        bounds = [0, *apart.tolist(), len(rows)]
        for begin, end in itertools.pairwise(bounds):
            if begin == end:
                continue
            for low, high in self._stretches(int(rows[begin]), int(rows[end - 1]) + 1):
                lo, hi = np.searchsorted(rows, (low, high))
                read = self._own.read(low, high, lent_buffer(self._own.buffer_bytes(high - low)))
                found[lo:hi] = taken_rows(read, rows[lo:hi] - low)
        return found

    def keep(self, sender: int, first: int, rows: Table) -> None:
        """Write rows behind that another server sent; first: the place of the first among all that it sends."""
        table = self._ghosts[sender]
        for low, high in self._stretches(first, first + len(rows)):
            buffer = self._writer.buffer(table, low, high - low)
            buffer[:] = rows[low - first : high - first]
            self._writer.put(table, low, buffer)

    def _stretches(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        count = max(1, AT_ONCE // self.row_bytes)
        return ((low, min(low + count, last)) for low in range(first, last, count))

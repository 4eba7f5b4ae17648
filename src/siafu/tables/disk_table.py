"""DiskTable: rows in a scratch file."""

from contextlib import AbstractContextManager
from threading import Lock

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.kernels import Table
from siafu.tables.page_pool import lent_buffer
from siafu.tables.pages import PAGE, Bytes, page_buffer
from siafu.tables.row_table import RowTable
from siafu.tables.scratch_directory import ScratchDirectory

_LINE = 64  # bytes: rows begin and end on multiples of it


class _PartPage:
    """A page of which some lines have been written, and others not yet."""

    def __init__(self) -> None:
        self.bytes, self.written = page_buffer(PAGE), np.zeros(PAGE // _LINE, np.bool_)

    def put(self, at: int, data: Bytes) -> None:
        self.bytes[at : at + len(data)] = data
        self.written[at // _LINE : (at + len(data)) // _LINE] = True

    def lay_over(self, page: Bytes) -> None:
        """Put what was written over what the file has."""
        page.reshape(-1, _LINE)[self.written] = self.bytes.reshape(-1, _LINE)[self.written]

    def copy(self) -> "_PartPage":
        found = _PartPage()
        found.bytes[:], found.written[:] = self.bytes, self.written
        return found


class DiskTable(RowTable):
    """Rows in a file of whole pages.

    A page that several ranges share stays in memory until all of it is written.
    """

    def __init__(self, scratch: ScratchDirectory, rows: int, columns: int, dtype: DTypeLike) -> None:
        super().__init__(rows, columns, dtype)
        self._file, self._traffic = scratch.file(rows * self.row_bytes), scratch.traffic
        self._parts: dict[int, _PartPage] = {}
        self._lock = Lock()

    def write(self, first: int, rows: Table) -> None:
        self._check(first, first + len(rows))
        data, at = self._bytes(rows), first * self.row_bytes
        end = at + len(data)
        begin, stop = -(-at // PAGE) * PAGE, end // PAGE * PAGE
        if begin > stop:  # all of it inside one page
            self._write_part(at, data)
            return
        if at < begin:
            self._write_part(at, data[: begin - at])
        if begin < stop:
            self._write_pages(data[begin - at : stop - at], begin)
        if stop < end:
            self._write_part(stop, data[stop - at :])

    def read(self, first: int, last: int, buffer: NDArray[np.uint8]) -> Table:
        self._check(first, last)
        at, end = first * self.row_bytes, last * self.row_bytes
        begin = at // PAGE * PAGE
        pages = buffer[: -(-end // PAGE) * PAGE - begin]
        # Found before the file is read: a page that is completed meanwhile would be missed in both.
        parts = self._parts_within(begin, begin + len(pages))
        self._file.read_into(pages, begin)
        for page, part in parts.items():
            part.lay_over(pages[page - begin : page - begin + PAGE])
        return self.view(pages[at - begin :], last - first)

    def waiting(self, *, all_threads: bool = False) -> AbstractContextManager[None]:
        return self._traffic.waiting(all_threads=all_threads)

    @property
    def direct(self) -> bool:
        """Whether rows go past the system's cache."""
        return self._file.direct

    def close(self) -> None:
        """Give the space back now."""
        self._file.close()

    def _bytes(self, rows: Table) -> Bytes:
        """Rows with what aligns them; only tables that `buffer` made have it."""
        whole = np.lib.stride_tricks.as_strided(
            rows, (len(rows), self.row_bytes // self.dtype.itemsize), rows.strides, writeable=False
        )
        if rows.dtype != self.dtype or rows.strides != (self.row_bytes, self.dtype.itemsize):
            raise ValueError("rows that a table's buffer did not make")
        return whole.reshape(-1).view(np.uint8)

    def _write_pages(self, data: Bytes, at: int) -> None:
        if data.ctypes.data % PAGE:
            aligned = lent_buffer(len(data))[: len(data)]
            aligned[:] = data
            data = aligned
        with self._lock:
            for page in [each for each in self._parts if at <= each < at + len(data)]:
                del self._parts[page]
        self._file.write(data, at)

    def _write_part(self, at: int, data: Bytes) -> None:
        page = at // PAGE * PAGE
        with self._lock:
            part = self._parts.setdefault(page, _PartPage())
            part.put(at - page, data)
            if not part.written[: (self.rows * self.row_bytes - page) // _LINE].all():
                return
            # Written under the lock: a reader finds the page either here or in the file.
            self._file.write(part.bytes, page)
            del self._parts[page]

    def _parts_within(self, begin: int, end: int) -> dict[int, _PartPage]:
        with self._lock:
            return {page: part.copy() for page, part in self._parts.items() if begin <= page < end}

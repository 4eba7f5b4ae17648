"""DiskTable: rows in a scratch file."""

import itertools
from collections.abc import Iterator, Sequence
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

    A page that several ranges share stays in memory until all of it is written: then it goes with the range that completed it.
    """

    def __init__(self, scratch: ScratchDirectory, rows: int, columns: int, dtype: DTypeLike) -> None:
        super().__init__(rows, columns, dtype)
        self._file, self._traffic = scratch.file(rows * self.row_bytes), scratch.traffic
        self._parts: dict[int, _PartPage] = {}
        self._complete: dict[int, _PartPage] = {}  # on their way to the file
        self._lock = Lock()

    def write(self, first: int, rows: Table) -> None:
        self.write_together(first, [rows])

    def write_together(self, first: int, pieces: Sequence[Table]) -> None:
        self._check(first, first + sum(map(len, pieces)))
        pages = self._pages(first * self.row_bytes, [self._bytes(each) for each in pieces])
        if not pages:
            return
        begin = min(pages)
        try:
            self._file.write_all([pages[at] for at in sorted(pages)], begin)
        finally:
            with self._lock:
                for at in pages:
                    self._complete.pop(at, None)

    def read(self, first: int, last: int, buffer: NDArray[np.uint8]) -> Table:
        self._check(first, last)
        at, end = first * self.row_bytes, last * self.row_bytes
        begin = at // PAGE * PAGE
        pages = buffer[: -(-end // PAGE) * PAGE - begin]
        # Found before the file is read: a page that is completed meanwhile would be missed in both.
        parts = self._parts_within(begin, begin + len(pages))
        self._file.read_into(pages, begin)
        for page, part in parts:
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

    def _pages(self, at: int, pieces: Sequence[Bytes]) -> dict[int, Bytes]:
        """Pages that can be written now of bytes from `at` on, by their place in the file: whole ones, one after the other."""
        end, found = at + sum(map(len, pieces)), dict[int, Bytes]()
        inside = range(-(-at // PAGE) * PAGE, end // PAGE * PAGE)  # pages that are written from end to end
        with self._lock:
            for page in [each for each in self._parts if each in inside]:
                del self._parts[page]
        for piece in pieces:
            for low, high in _cut_at_pages(at, at + len(piece)):
                data, page = piece[low - at : high - at], low // PAGE * PAGE
                if page == low and (high - low) % PAGE == 0:
                    found[page] = _aligned(data)
                elif page in inside:
                    found.setdefault(page, page_buffer(PAGE))[low - page : high - page] = data
                elif (completed := self._completed(page, low, data)) is not None:
                    found[page] = completed
            at += len(piece)
        return found

    def _completed(self, page: int, at: int, data: Bytes) -> Bytes | None:
        """Put some lines into a page that other ranges share; all of it, if that was the last of it."""
        with self._lock:
            part = self._parts.setdefault(page, _PartPage())
            part.put(at - page, data)
            if not part.written[: (self.rows * self.row_bytes - page) // _LINE].all():
                return None
            # A reader finds the page here until it is in the file.
            self._complete[page] = self._parts.pop(page)
            return part.bytes

    def _parts_within(self, begin: int, end: int) -> list[tuple[int, _PartPage]]:
        """Pages that are not in the file yet, older ones first."""
        with self._lock:
            return [
                (page, part.copy())
                for pages in (self._complete, self._parts)
                for page, part in pages.items()
                if begin <= page < end
            ]


def _cut_at_pages(at: int, end: int) -> Iterator[tuple[int, int]]:
    """A range of bytes as the rest of a page, whole pages, and the begin of a page; empty ones are left out."""
    begin = min(-(-at // PAGE) * PAGE, end)
    stop = max(begin, end // PAGE * PAGE)
    return ((low, high) for low, high in itertools.pairwise((at, begin, stop, end)) if low < high)


def _aligned(data: Bytes) -> Bytes:
    """The same bytes from the begin of a page on."""
    if data.ctypes.data % PAGE == 0:
        return data
    found = lent_buffer(len(data))[: len(data)]
    found[:] = data
    return found

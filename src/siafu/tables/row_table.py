"""RowTable: rows of one width that are written and read in ranges. Here in memory; `disk_table` has those on disk."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.kernels import Table, padded, table_row_bytes, zero_table
from siafu.tables.page_pool import lent_buffer
from siafu.tables.pages import PAGE, page_buffer, whole_pages


class RowTable(ABC):
    """Rows as kernels want them (`siafu.kernels.rows`); zeros until they are written.

    Any thread may read and write rows that no other writes at the same time.
    """

    def __init__(self, rows: int, columns: int, dtype: DTypeLike) -> None:
        self.rows, self.columns, self.dtype = rows, columns, np.dtype(dtype)
        self.row_bytes = table_row_bytes(columns, self.dtype.itemsize)

    @abstractmethod
    def write(self, first: int, rows: Table) -> None:
        """Put rows there from `first` on; they are as `buffer` makes them."""

    def write_together(self, first: int, pieces: Sequence[Table]) -> None:
        """Put rows there that follow each other, each piece as `buffer` makes it for its own place."""
        for rows in pieces:
            self.write(first, rows)
            first += len(rows)

    @abstractmethod
    def read(self, first: int, last: int, buffer: NDArray[np.uint8]) -> Table:
        """Rows first:last, to be read only: in `buffer`, which `buffer_bytes` is enough for, or as they lie."""

    def waiting(self, *, all_threads: bool = False) -> AbstractContextManager[None]:
        """While a thread that computes waits for rows of the table; all_threads: others wait for that thread."""
        return nullcontext()

    def buffer(self, rows: int, first: int = 0) -> Table:
        """Zeros for so many rows, to be written from `first` on: they begin in a page where they do in the table."""
        offset = first * self.row_bytes % PAGE
        return self.view(page_buffer(offset + rows * self.row_bytes)[offset:], rows)

    def lent_rows(self, rows: int, first: int = 0) -> Table:
        """The same in memory that is lent: what is in it means nothing."""
        offset = first * self.row_bytes % PAGE
        return self.view(lent_buffer(offset + rows * self.row_bytes)[offset:], rows)

    def buffer_bytes(self, rows: int) -> int:
        """Of a buffer that any range of so many rows can be read into."""
        return whole_pages(rows * self.row_bytes) + PAGE

    def view(self, buffer: NDArray[np.uint8], rows: int) -> Table:
        """The first rows that a buffer has room for."""
        items = buffer[: rows * self.row_bytes].view(self.dtype)
        table: NDArray[Any] = items.reshape(rows, self.row_bytes // self.dtype.itemsize)
        return table[:, : padded(self.columns)]

    def _check(self, first: int, last: int) -> None:
        if not 0 <= first <= last <= self.rows:
            raise IndexError(f"rows {first} to {last} of {self.rows}")


class MemoryTable(RowTable):
    """Rows in memory: reading copies nothing."""

    def __init__(self, rows: int, columns: int, dtype: DTypeLike) -> None:
        super().__init__(rows, columns, dtype)
        self.table = zero_table(rows, columns, dtype)

    def write(self, first: int, rows: Table) -> None:
        self._check(first, first + len(rows))
        self.table[first : first + len(rows)] = rows

    def read(self, first: int, last: int, buffer: NDArray[np.uint8]) -> Table:
        self._check(first, last)
        return self.table[first:last]

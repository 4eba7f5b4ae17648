"""MadeRows: rows that are made when they are read, such as those of a mapped file in another type."""

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.kernels import Table
from siafu.tables.row_table import RowTable

MakeRows = Callable[[int, int, Table], None]
"""Puts the rows from one number up to another into a table."""


class MadeRows(RowTable):
    """Rows that nobody holds; to be read only."""

    def __init__(self, rows: int, columns: int, dtype: DTypeLike, make: MakeRows) -> None:
        super().__init__(rows, columns, dtype)
        self._make = make

    def write(self, first: int, rows: Table) -> None:
        raise TypeError("rows that are made cannot be written")

    def read(self, first: int, last: int, buffer: NDArray[np.uint8]) -> Table:
        self._check(first, last)
        table = self.view(buffer, last - first)
        self._make(first, last, table)
        return table

"""Rows that travel from one server's tables to another's, in memory or on disk."""

import numpy as np
from numpy.typing import NDArray

from siafu.kernels import Table, padded, place_rows, taken_rows
from siafu.tables import GhostedTable

SentTable = Table | GhostedTable
"""Own rows, then ghosts."""
Ids = NDArray[np.int64]


def packed_rows(source: SentTable, rows: Ids) -> NDArray[np.uint8]:
    """Own rows of a table, by ascending numbers: [n, bytes of a row], whatever they are of."""
    taken = source.taken(rows) if isinstance(source, GhostedTable) else taken_rows(source, rows)
    return taken.view(np.uint8).reshape(len(taken), taken.shape[1] * taken.itemsize)


def keep_packed(packed: NDArray[np.uint8], target: SentTable, sender: int, first: int, slots: Ids) -> None:
    """Put rows that another server packed among the ghosts of a table.

    first: the place of the first among all that it sends
    slots: where they go
    """
    columns = padded(target.columns) if isinstance(target, GhostedTable) else target.shape[1]
    if packed.dtype != np.uint8 or packed.shape[1:] != (columns * target.dtype.itemsize,):
        raise ValueError(f"rows of {packed.shape[1:]} bytes, not {columns * target.dtype.itemsize}")
    rows = np.ascontiguousarray(packed).view(target.dtype)
    if isinstance(target, GhostedTable):
        target.keep(sender, first, rows)
    else:
        place_rows(rows, target, slots)

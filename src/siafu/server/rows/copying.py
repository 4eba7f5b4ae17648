"""Copying rows from one server's tables to another's."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels import Table


def copy_rows(source: Table, rows: NDArray[np.int64], target: Table, slots: NDArray[np.int64]) -> int:
    """target[slots] = source[rows], in the calling thread, without the GIL; how many bytes that were."""
    _copy_rows(source, rows, target, slots)
    return len(rows) * int(source.shape[1]) * source.itemsize


def taken_rows(source: Table, rows: NDArray[np.int64]) -> Table:
    """source[rows], a copy with nothing between its rows; without the GIL."""
    taken = np.empty((len(rows), source.shape[1]), source.dtype)
    _copy_rows(source, rows, taken, np.arange(len(rows)))
    return taken


def place_rows(rows: Table, target: Table, slots: NDArray[np.int64]) -> None:
    """target[slots] = rows, without the GIL."""
    _copy_rows(rows, np.arange(len(rows)), target, slots)


@kernel
def _copy_rows(source: Any, rows: Any, target: Any, slots: Any) -> None:
    for k in range(len(rows)):
        for c in range(source.shape[1]):
            target[slots[k], c] = source[rows[k], c]

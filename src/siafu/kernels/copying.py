"""Rows copied by their numbers, from one table to another."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.rows import Table


def copy_rows(source: Table, rows: NDArray[np.int64], target: Table, slots: NDArray[np.int64]) -> None:
    """target[slots] = source[rows], in the calling thread, without the GIL."""
    _copy_rows(source, rows, target, slots)


def taken_rows(source: Table, rows: NDArray[np.int64]) -> Table:
    """source[rows], a copy with nothing between its rows, likewise."""
    taken = np.empty((len(rows), source.shape[1]), source.dtype)
    _copy_rows(source, rows, taken, np.arange(len(rows)))
    return taken


def place_rows(rows: Table, target: Table, slots: NDArray[np.int64]) -> None:
    """target[slots] = rows, likewise."""
    _copy_rows(rows, np.arange(len(rows)), target, slots)


@kernel
def _copy_rows(source: Any, rows: Any, target: Any, slots: Any) -> None:
    for k in range(len(rows)):
        for c in range(source.shape[1]):
            target[slots[k], c] = source[rows[k], c]

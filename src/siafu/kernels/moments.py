"""Moments of rows: means and variances of columns, in float64, in one walk and always in the same order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel

Floats = NDArray[np.float64]


def column_sums(rows: NDArray[Any]) -> Floats:
    """[columns] sums over the rows, in the calling thread."""
    sums = np.zeros(rows.shape[1])
    _sums(rows, sums)
    return sums


def column_moments(rows: NDArray[Any]) -> tuple[Floats, Floats]:
    """[columns] means, and sums of the squares of the distances from them; there is at least one row.

    Distances are first taken from the first row: where columns are far from zero, squares would cancel each other.
    """
    sums, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    shift = rows[0].astype(np.float64)
    _moments(rows, shift, sums, squares)
    return shift + sums / len(rows), np.maximum(squares - sums * sums / len(rows), 0.0)


@kernel
def _sums(rows: Any, sums: Any) -> None:
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            sums[c] += np.float64(rows[i, c])


@kernel
def _moments(rows: Any, shift: Any, sums: Any, squares: Any) -> None:
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            away = np.float64(rows[i, c]) - shift[c]
            sums[c] += away
            squares[c] += away * away

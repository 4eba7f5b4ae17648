"""Moments of rows: means and variances of columns, in float64, in one walk and always in the same order; and gradients through them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.rows import flat_view

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


def moments_adjoint(
    rows: NDArray[Any],
    means: NDArray[Any],
    factors: NDArray[Any],
    offsets: NDArray[Any],
    besides: NDArray[Any] | None,
) -> NDArray[Any]:
    """besides + ((rows - means) · factors + offsets): gradients of rows by their moments, and those that came otherwise.

    rows, besides: [n, columns] whose columns are next to each other; the others: [columns]
    """
    out = np.empty(rows.shape, rows.dtype)
    if out.size:
        others, further = (None, 0) if besides is None else flat_view(besides)
        _adjoint(*flat_view(rows), means, factors, offsets, others, further, out)
    return out


def scaled_back(
    gradients: NDArray[Any], rows: NDArray[Any], shift: NDArray[Any], factor: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The way back through (rows + shift) · factor: gradients · factor, Σ gradients, Σ gradients · (rows + shift).

    Sums are over the rows, of some in their type and of these in float64.
    """
    out = np.empty(rows.shape, rows.dtype)
    sums = np.zeros((2, rows.shape[1]))
    if out.size:
        part = np.empty(sums.shape, rows.dtype)
        _scale_back(*flat_view(gradients), *flat_view(rows), shift, factor, part, sums, out)
    of_gradients, of_products = sums.astype(rows.dtype)
    return out, of_gradients, of_products


@kernel
def _adjoint(
    flat: Any, step: int, means: Any, factors: Any, offsets: Any, besides: Any, further: int, out: Any
) -> None:
    columns = out.shape[1]
    for i in range(len(out)):
        source, target = flat[i * step : i * step + columns], out[i]
        added = source if besides is None else besides[i * further : i * further + columns]
        for c in range(columns):
            value = (source[c] - means[c]) * factors[c] + offsets[c]
            if besides is not None:
                value = added[c] + value
            target[c] = value


_TOGETHER = 32  # rows whose sums are taken in their own type


@kernel
def _scale_back(
    flat: Any, step: int, rows: Any, rows_step: int, shift: Any, factor: Any, part: Any, sums: Any, out: Any
) -> None:
    columns = out.shape[1]
    of_gradients, of_products = part[0], part[1]
    for first in range(0, len(out), _TOGETHER):
        part[:] = 0
        for i in range(first, min(first + _TOGETHER, len(out))):
            gradient, row = flat[i * step : i * step + columns], rows[i * rows_step : i * rows_step + columns]
            target = out[i]
            # A loop for each result: of more the compiler does not know that they are different memory.
            for c in range(columns):
                target[c] = gradient[c] * factor[c]
            for c in range(columns):
                of_gradients[c] += gradient[c]
            for c in range(columns):
                of_products[c] += gradient[c] * (row[c] + shift[c])
        for c in range(columns):
            sums[0, c] += of_gradients[c]
            sums[1, c] += of_products[c]


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

"""Products of tall tables, at the speed of the processor's multipliers where rows come from memory.

A library packs its factors anew before it multiplies them, which pays for large square matrices. A block of a few thousand rows and
a matrix of weights are read as they lie.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.hardware.machine import cpu_id
from siafu.base.jit import kernel
from siafu.kernels.llvm.product_tiles import HEIGHTS, PRODUCTS_ARE_FAST, VECTOR, product_tile
from siafu.kernels.rows import flat_view

__all__ = ["PRODUCTS_ARE_FAST", "multiplies_rows", "row_products", "summed_products", "sums_products"]

_AT_ONCE = 256  # rows whose sum begins anew: what is read of them stays in the nearest caches
_HIGHEST, _HIGH, _ = HEIGHTS
# PyTorch's library is Intel's: on its own processors it adds products up 1.1 to 1.4 times as fast as the sums here, on others slower.
_LIBRARY_SUMS_FASTER = cpu_id().startswith("GenuineIntel")

Numbers = NDArray[np.float32]


def multiplies_rows(columns: int) -> bool:
    """Whether `row_products` of a matrix with so many columns is worth calling."""
    return columns >= VECTOR


def row_products(rows: Numbers, weights: Numbers) -> Numbers:
    """rows · weights, [rows, columns of weights]. Columns are next to each other; rows may be padded."""
    columns = weights.shape[1]
    whole = columns + _spare(columns)
    if not rows.size:
        return np.zeros((len(rows), columns), np.float32)
    out = np.empty((len(rows), whole), np.float32)
    given = (
        np.ascontiguousarray(weights) if whole == columns else np.pad(weights, ((0, 0), (0, whole - columns)))
    )
    _multiply(*flat_view(rows), given.reshape(-1), len(rows), rows.shape[1], whole, out.reshape(-1))
    return out[:, :columns]


def sums_products(left: int, right: int) -> bool:
    """Whether `summed_products` of so many columns is worth calling."""
    if _LIBRARY_SUMS_FASTER:
        return False
    return (
        min(left, right) >= VECTOR and 0 in (_spare(left), _spare(right)) and max(left, right) >= 2 * VECTOR
    )


def summed_products(left: Numbers, right: Numbers) -> Numbers:
    """leftᵀ · right, [left's columns, right's columns], of two tables with as many rows.

    Columns are next to each other; rows may be padded. Each sum's order depends on the number of rows alone.
    """
    if _spare(left.shape[1]) < _spare(right.shape[1]):
        return np.ascontiguousarray(summed_products(right, left).T)
    columns = right.shape[1]
    whole = columns + _spare(columns)
    out = np.zeros((left.shape[1], whole), np.float32)
    if right.size and left.size:
        given = right if whole == columns else np.pad(right, ((0, 0), (0, whole - columns)))
        _add_products(*flat_view(left), *flat_view(given), len(left), left.shape[1], whole, out.reshape(-1))
    return out if whole == columns else np.ascontiguousarray(out[:, :columns])


def _spare(columns: int) -> int:
    """Columns that are missing to whole vectors."""
    return -columns % VECTOR


@kernel
def _multiply(rows: Any, step: int, weights: Any, count: int, inner: int, columns: int, out: Any) -> None:
    i = 0
    while i < count:
        height = _height(count - i)
        for column in range(0, columns, 2 * VECTOR):
            vectors = min(2, (columns - column) // VECTOR)
            product_tile(
                out,
                i * columns + column,
                columns,
                rows,
                i * step,
                step,
                1,
                weights,
                column,
                columns,
                inner,
                height,
                vectors,
                1,
            )
        i += height


@kernel
def _add_products(
    left: Any, left_step: int, right: Any, right_step: int, rows: int, height: int, columns: int, out: Any
) -> None:
    for first in range(0, rows, _AT_ONCE):
        count = min(_AT_ONCE, rows - first)
        i = 0
        while i < height:
            tile = _height(height - i)
            for column in range(0, columns, 2 * VECTOR):
                vectors = min(2, (columns - column) // VECTOR)
                start = first * right_step + column
                product_tile(
                    out,
                    i * columns + column,
                    columns,
                    left,
                    first * left_step + i,
                    1,
                    left_step,
                    right,
                    start,
                    right_step,
                    count,
                    tile,
                    vectors,
                    0,
                )
            i += tile


@kernel
def _height(left: int) -> int:
    """Rows of the next tile, of so many that are left."""
    return _HIGHEST if left >= _HIGHEST else _HIGH if left >= _HIGH else 1

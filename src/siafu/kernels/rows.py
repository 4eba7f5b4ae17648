"""Tables of rows as the kernels want them: every row starts on a cache line, in the storage type."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.jit import kernel
from siafu.kernels.emit import TILE_STEP
from siafu.kernels.tiles import put, value_of
from siafu.threads import run_all, thread_count

_LINE = 64  # bytes
_ROWS_AT_LEAST = 4096  # a smaller table is not worth a second thread

Table = NDArray[Any]  # [rows, padded columns] float32, float64, or uint16 with bfloat16 bits


def padded(columns: int) -> int:
    """Columns that kernels compute for a table this wide."""
    return -(-columns // TILE_STEP) * TILE_STEP


def empty_table(rows: int, columns: int, dtype: DTypeLike) -> Table:
    """An uninitialised table with `padded(columns)` columns whose rows start on cache lines."""
    kind = np.dtype(dtype)
    row_bytes = -(-padded(columns) * kind.itemsize // _LINE) * _LINE
    buffer = np.empty(rows * row_bytes + _LINE, np.uint8)
    offset = -buffer.ctypes.data % _LINE
    table = buffer[offset : offset + rows * row_bytes].view(kind).reshape(rows, row_bytes // kind.itemsize)
    return table[:, : padded(columns)]


def is_table(values: NDArray[Any], columns: int) -> bool:
    """Whether kernels can read `values` as it stands, with no copy."""
    return (
        values.ctypes.data % _LINE == 0
        and values.strides[0] % _LINE == 0
        and values.strides[0] >= columns * values.itemsize
        and values.strides[1] == values.itemsize
        and columns % TILE_STEP == 0
    )


def pack(values: NDArray[Any], scale: NDArray[Any] | None, dtype: DTypeLike) -> Table:
    """A table of `values`, each row times its scale, rounded to the storage type; spare columns are zero."""
    if scale is None and values.dtype == dtype and is_table(values, values.shape[1]):
        return values
    table = empty_table(len(values), values.shape[1], dtype)
    blocks = _row_blocks(len(values))
    run_all(lambda block: _pack(values, scale, table, block[0], block[1]), blocks)
    return table


def pack_heads(values: NDArray[Any], heads: int, head_columns: int, dtype: DTypeLike) -> Table:
    """A table in which each head's columns are padded to `head_columns`."""
    columns = values.shape[1] // heads
    if columns == head_columns:
        return pack(values, None, dtype)
    table = empty_table(len(values), heads * head_columns, dtype)
    run_all(
        lambda block: _pack_heads(values, table, heads, columns, head_columns, block[0], block[1]),
        _row_blocks(len(values)),
    )
    return table


def _row_blocks(rows: int) -> list[tuple[int, int]]:
    count = max(1, min(thread_count(), rows // _ROWS_AT_LEAST))
    bounds = [rows * k // count for k in range(count + 1)]
    return list(itertools.pairwise(bounds))


@kernel
def _pack(values: Table, scale: Any, table: Table, first: int, last: int) -> None:
    columns = values.shape[1]
    for i in range(first, last):
        for c in range(columns):
            value = value_of(values, i, c)
            if scale is not None:
                value *= scale[i]
            put(table, i, c, value)
        for c in range(columns, table.shape[1]):
            put(table, i, c, 0.0)


@kernel
def _pack_heads(
    values: Table, table: Table, heads: int, columns: int, head_columns: int, first: int, last: int
) -> None:
    for i in range(first, last):
        for c in range(table.shape[1]):
            put(table, i, c, 0.0)
        for h in range(heads):
            for c in range(columns):
                put(table, i, h * head_columns + c, value_of(values, i, h * columns + c))

"""Tables of rows as the kernels want them: every row starts on a cache line, in the storage type."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.emit import TILE_STEP
from siafu.kernels.llvm.tiles import put, value_of

_LINE = 64  # bytes
_ROWS_AT_LEAST = 4096  # a smaller table is not worth a second thread

Table = NDArray[Any]  # [rows, padded columns] float32, float64, or uint16 with bfloat16 bits


def padded(columns: int) -> int:
    """Columns that kernels compute for a table this wide."""
    return -(-columns // TILE_STEP) * TILE_STEP


def table_row_bytes(columns: int, itemsize: int) -> int:
    """Bytes of one row of a table, with its spare columns, up to the next row."""
    return -(-padded(columns) * itemsize // _LINE) * _LINE


def empty_table(rows: int, columns: int, dtype: DTypeLike) -> Table:
    """An uninitialised table with `padded(columns)` columns whose rows start on cache lines."""
    return _table(np.empty, rows, columns, dtype)


def zero_table(rows: int, columns: int, dtype: DTypeLike) -> Table:
    """`empty_table` of zeros; the system provides them page by page, when they are first touched."""
    return _table(np.zeros, rows, columns, dtype)


def _table(allocate: Callable[..., NDArray[Any]], rows: int, columns: int, dtype: DTypeLike) -> Table:
    kind = np.dtype(dtype)
    row_bytes = table_row_bytes(columns, kind.itemsize)
    buffer = allocate(rows * row_bytes + _LINE, np.uint8)
    offset = -buffer.ctypes.data % _LINE
    table = buffer[offset : offset + rows * row_bytes].view(kind).reshape(rows, row_bytes // kind.itemsize)
    return table[:, : padded(columns)]


def flat_view(rows: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """[rows, columns], not empty, as one list, and how many numbers further a row begins.

    It tells the compiler that columns are next to each other, though rows may be padded.
    """
    count, columns = rows.shape
    if rows.flags.c_contiguous:
        return rows.reshape(-1), columns
    step = rows.strides[0] // rows.itemsize
    return np.lib.stride_tricks.as_strided(rows, ((count - 1) * step + columns,), (rows.itemsize,)), step


class _Window:
    """Memory under another first address, as NumPy asks for it; it keeps the memory alive."""

    def __init__(self, table: Table, first: int, last: int) -> None:
        self._table = table
        self.__array_interface__ = {
            "version": 3,
            "typestr": table.dtype.str,
            "shape": (last, table.shape[1]),
            "strides": table.strides,
            "data": (table.ctypes.data - first * table.strides[0], False),
        }


def window(table: Table, first: int, last: int) -> Table:
    """`table` as a part of a longer one, of which the rows from `first` up to `last` are there and no others.

    So a kernel that numbers rows as the long table does can fill the short one. Whoever touches another row touches
    memory that is not its own.
    """
    return np.asarray(_Window(table, first, last))


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
    run_all(lambda block: pack_range(values[slice(*block)], scale, table, None, block[0]), blocks)
    return table


def pack_heads(values: NDArray[Any], heads: int, head_columns: int, dtype: DTypeLike) -> Table:
    """A table in which each head's columns are padded to `head_columns`."""
    columns = values.shape[1] // heads
    if columns == head_columns:
        return pack(values, None, dtype)
    table = empty_table(len(values), heads * head_columns, dtype)
    run_all(
        lambda block: pack_heads_range(values[slice(*block)], table, heads, head_columns, None, block[0]),
        _row_blocks(len(values)),
    )
    return table


def _row_blocks(rows: int) -> list[tuple[int, int]]:
    count = max(1, min(thread_count(), rows // _ROWS_AT_LEAST))
    bounds = [rows * k // count for k in range(count + 1)]
    return list(itertools.pairwise(bounds))


@kernel
def pack_range(values: Table, scale: Any, table: Table, picked: Any, first: int) -> None:
    """Put `values` into the table's rows from `first` on, or into those that picked[first:] names, in this thread.

    scale: a factor for each row of the table; None: 1
    """
    columns = values.shape[1]
    for k in range(len(values)):
        i = row_at(picked, first + k)
        for c in range(columns):
            value = value_of(values, k, c)
            if scale is not None:
                value *= scale[i]
            put(table, i, c, value)
        for c in range(columns, table.shape[1]):
            put(table, i, c, 0.0)


@kernel
def pack_heads_range(
    values: Table, table: Table, heads: int, head_columns: int, picked: Any, first: int
) -> None:
    """`pack_range` with each head's columns padded to `head_columns`."""
    columns = values.shape[1] // heads
    if columns == head_columns:
        pack_range(values, None, table, picked, first)
        return
    for k in range(len(values)):
        i = row_at(picked, first + k)
        for c in range(heads * head_columns, table.shape[1]):
            put(table, i, c, 0.0)
        for h in range(heads):
            for c in range(columns):
                put(table, i, h * head_columns + c, value_of(values, k, h * columns + c))
            for c in range(columns, head_columns):
                put(table, i, h * head_columns + c, 0.0)


@kernel
def copy_range(table: Table, out: Table, picked: Any, first: int, last: int) -> None:
    """Copy the rows from `first` up to `last`, or those that picked[first:last] names, from one table to another."""
    for k in range(first, last):
        i = row_at(picked, k)
        for c in range(out.shape[1]):
            out[i, c] = table[i, c]

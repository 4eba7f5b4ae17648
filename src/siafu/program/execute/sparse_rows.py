"""SparseRows: rows that are mostly zeros, held without them, and their products with dense matrices."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.jit import kernel
from siafu.kernels import empty_table, is_table, near_cache_bytes, pack_range, sum_range
from siafu.kernels.llvm.emit import MAX_TILE
from siafu.kernels.llvm.tiles import accumulate_near
from siafu.kernels.sums import ONE_HEAD
from siafu.nn.tensors import as_rows, as_tensor


class SparseRows:
    """[n, columns] floats in CSR form. What a tensor program may do with them is to multiply: see `times`.

    Each sum adds its terms in the order of the rows or columns, in the calling thread: the result depends on nothing else.

    indptr:  [n + 1], indices: [nonzeros] columns, ascending in a row; values: [nonzeros]
    """

    def __init__(
        self, indptr: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[Any], columns: int
    ) -> None:
        self._indptr, self._indices, self._values = indptr, indices, values
        self.shape = (len(indptr) - 1, columns)
        self._blocks: dict[tuple[int, int], SparseRows] = {}
        self._transposed: tuple[Any, Any, Any] | None = None

    @classmethod
    def of(cls, rows: Tensor) -> "SparseRows":
        """The nonzeros of dense rows."""
        dense = rows.numpy()
        indptr = np.zeros(len(dense) + 1, np.int64)
        _count_nonzeros(dense, indptr)
        np.cumsum(indptr, out=indptr)
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], dense.dtype)
        _take_nonzeros(dense, indptr, indices, values)
        return cls(indptr, indices, values, dense.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self._values.dtype == np.float64 else torch.float32

    @property
    def density(self) -> float:
        """The share of entries that are not zero."""
        return len(self._indices) / max(1, self.shape[0] * self.shape[1])

    @property
    def nbytes(self) -> int:
        """Memory, with the columns' order that the backward pass reads."""
        return 2 * (self._indices.nbytes + self._values.nbytes) + self._indptr.nbytes

    def element_size(self) -> int:
        return int(self._values.itemsize)

    def rows(self, first: int, last: int) -> "SparseRows":
        """The rows from `first` up to `last`; asked for again, the same object."""
        if (first, last) == (0, len(self)):
            return self
        found = self._blocks.get((first, last))
        if found is None:
            lo, hi = self._indptr[first], self._indptr[last]
            indptr = self._indptr[first : last + 1] - lo
            found = SparseRows(indptr, self._indices[lo:hi], self._values[lo:hi], self.shape[1])
            self._blocks[first, last] = found
        return found

    def pick(self, which: NDArray[np.int64]) -> "SparseRows":
        """Some of the rows, in that order."""
        counts = np.diff(self._indptr)[which]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self._indptr[which] - indptr[:-1], counts) + np.arange(indptr[-1])
        return SparseRows(indptr, self._indices[places], self._values[places], self.shape[1])

    def dense(self) -> Tensor:
        """The rows with their zeros."""
        found = np.zeros(self.shape, self._values.dtype)
        found[np.repeat(np.arange(len(self)), np.diff(self._indptr)), self._indices] = self._values
        return torch.from_numpy(found)

    def times(self, matrix: Tensor) -> Tensor:
        """These rows · matrix: [n, width] for a matrix [columns, width]."""
        return _product(self._indptr, self._indices, self._values, matrix)

    def times_from_left(self, matrix: Tensor) -> Tensor:
        """matrix · these rows: [height, columns] for a matrix [height, n]."""
        if self._transposed is None:
            self._transposed = _transposed(self._indptr, self._indices, self._values, self.shape[1])
        return _product(*self._transposed, matrix.t()).t().contiguous()


def _product(indptr: Any, indices: Any, values: Any, matrix: Tensor) -> Tensor:
    table = _table_of(as_rows(matrix))
    out = empty_table(len(indptr) - 1, matrix.shape[1], values.dtype)
    if table.nbytes <= near_cache_bytes() // 2:
        _sum_near(indptr, indices, values, table, out)
    else:
        sum_range(indptr, indices, values, table, None, None, out, None, 0, len(out))
    return as_tensor(out, matrix.shape[1])


def _table_of(matrix: NDArray[Any]) -> NDArray[Any]:
    if is_table(matrix, matrix.shape[1]):
        return matrix
    table = empty_table(len(matrix), matrix.shape[1], matrix.dtype)
    pack_range(matrix, None, table, None, 0)
    return table


def _transposed(indptr: Any, indices: Any, values: Any, columns: int) -> tuple[Any, Any, Any]:
    starts = np.zeros(columns + 1, np.int64)
    np.cumsum(np.bincount(indices, minlength=columns), out=starts[1:])
    rows, moved = np.empty(len(indices), np.int32), np.empty(len(indices), values.dtype)
    _sort_by_column(indptr, indices, values, starts[:-1].copy(), rows, moved)
    return starts, rows, moved


@kernel
def _sum_near(indptr: Any, indices: Any, values: Any, table: Any, out: Any) -> None:
    """`sum_range` of a matrix that stays in the core's own cache: none of its rows is asked for early."""
    columns = out.shape[1]
    for i in range(len(out)):
        out[i, :] = 0
        for c in range(0, columns, MAX_TILE):
            tile = min(columns - c, MAX_TILE)
            accumulate_near(
                out, i, table, indices, indptr[i], -1, -1, indptr[i + 1], c, tile, values, 0, ONE_HEAD
            )


@kernel
def _count_nonzeros(dense: Any, indptr: Any) -> None:
    for i in range(dense.shape[0]):
        for c in range(dense.shape[1]):
            if dense[i, c] != 0:
                indptr[i + 1] += 1


@kernel
def _take_nonzeros(dense: Any, indptr: Any, indices: Any, values: Any) -> None:
    for i in range(dense.shape[0]):
        place = indptr[i]
        for c in range(dense.shape[1]):
            if dense[i, c] != 0:
                indices[place], values[place] = c, dense[i, c]
                place += 1


@kernel
def _sort_by_column(indptr: Any, indices: Any, values: Any, place: Any, rows: Any, moved: Any) -> None:
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            at = place[indices[k]]
            rows[at], moved[at] = i, values[k]
            place[indices[k]] = at + 1

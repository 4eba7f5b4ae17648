"""SparseFeatures: features of a sample's vertices that are mostly zeros, as a model's first linear map reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from siafu.base.errors import BadInput
from siafu.base.jit import kernel
from siafu.kernels import empty_table
from siafu.kernels.llvm.emit import MAX_TILE
from siafu.kernels.llvm.tiles import accumulate_near
from siafu.kernels.rows import pack_range, zero_table
from siafu.kernels.sums import ONE_HEAD
from siafu.nn.gathers.functions import call
from siafu.nn.tensors import as_rows, as_tensor
from siafu.server.rows.feature_rows import FeatureRows

_ROWS_AT_ONCE = 1 << 12  # of dense features, while their zeros are left out


class SparseTable:
    """The nonzeros of all features, in memory: a row is read where it stands.

    indptr: [V + 1] int64, columns: [nonzeros] int32, values: [nonzeros]; width: the number of features
    """

    def __init__(self, features: FeatureRows, vertices: int) -> None:
        indptr, columns, values = [np.zeros(1, np.int64)], list[NDArray[Any]](), list[NDArray[Any]]()
        for first in range(0, vertices, _ROWS_AT_ONCE):
            rows = features.block(first, min(first + _ROWS_AT_ONCE, vertices)).numpy()
            where, found = np.nonzero(rows)
            counts = np.bincount(where, minlength=len(rows))
            indptr.append(indptr[-1][-1] + np.cumsum(counts))
            columns.append(found.astype(np.int32))
            values.append(rows[where, found])
            self.width = rows.shape[1]
        self.indptr = np.concatenate(indptr)
        self.columns, self.values = np.concatenate(columns), np.concatenate(values)


class SparseFeatures:
    """Rows of a sparse table. A linear map may read them, as if they were a tensor, and nothing else may."""

    def __init__(self, table: SparseTable, vertices: NDArray[np.int64]) -> None:
        self.table, self.vertices = table, vertices
        self.shape, self.ndim = (len(vertices), table.width), 2

    def __len__(self) -> int:
        return len(self.vertices)

    def __getitem__(self, rows: slice) -> "SparseFeatures":
        return SparseFeatures(self.table, self.vertices[rows])

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.nn.functional.linear or not isinstance(args[0], cls):
            raise BadInput(
                f"features without their zeros are multiplied, and {func.__name__} is another thing"
            )
        x, weight, *bias = args
        bias = bias or [(kwargs or {}).get("bias")]
        out = call(_Product, weight, x)
        return out if bias[0] is None else out + bias[0]


class _Product(torch.autograd.Function):
    """x · weightᵀ, and the weight's gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: SparseFeatures) -> Tensor:
        ctx.x = x
        matrix = as_rows(weight.t())
        table = empty_table(matrix.shape[0], matrix.shape[1], matrix.dtype)
        pack_range(matrix, None, table, None, 0)
        out = empty_table(len(x), matrix.shape[1], matrix.dtype)
        _multiply(x.table.indptr, x.table.columns, x.table.values, x.vertices, table, out)
        return as_tensor(out, matrix.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, given = ctx.x, as_rows(gradients[0])
        found = zero_table(x.table.width, given.shape[1], given.dtype)
        _spread(x.table.indptr, x.table.columns, x.table.values, x.vertices, given, found)
        return as_tensor(found, given.shape[1]).t(), None


@kernel
def _multiply(indptr: Any, columns: Any, values: Any, vertices: Any, table: Any, out: Any) -> None:
    """out[i] = Σ values[k] · table[columns[k]] over the nonzeros of row vertices[i]."""
    for i in range(len(vertices)):
        lo, hi = indptr[vertices[i]], indptr[vertices[i] + 1]
        out[i, :] = 0
        for c in range(0, out.shape[1], MAX_TILE):
            tile = min(out.shape[1] - c, MAX_TILE)
            accumulate_near(out, i, table, columns, lo, -1, -1, hi, c, tile, values, 0, ONE_HEAD)


@kernel
def _spread(indptr: Any, columns: Any, values: Any, vertices: Any, given: Any, out: Any) -> None:
    """out[columns[k]] += values[k] · given[i], over the nonzeros of row vertices[i]."""
    width = given.shape[1]
    for i in range(len(vertices)):
        row = given[i]
        for k in range(indptr[vertices[i]], indptr[vertices[i] + 1]):
            target, value = out[columns[k]], values[k]
            for c in range(width):
                target[c] += value * row[c]

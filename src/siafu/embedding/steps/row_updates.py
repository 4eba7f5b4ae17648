"""Updates of some rows of a table: gradients that meet in a row are added up, then the optimizer steps once."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.jit import kernel
from siafu.embedding.embed_options import OPTIMIZERS

_EPSILON = {"adagrad": 1e-10, "adam": 1e-8}  # as torch.optim has them
_BETAS = (0.9, 0.999)


class TouchedRows:
    """The different rows that a list of ids names, and where in the list each is named.

    One for each thread that lists: it remembers a number for each row of the table.

    rows:   [u] the different ids, by first appearance
    starts: [u + 1] where each one's positions begin in `order`
    order:  positions in the list, by row, ascending within one
    """

    def __init__(self, num_rows: int) -> None:
        self._slot = np.full(num_rows, -1, np.int32)
        self.rows = np.empty(0, np.int64)
        self.starts = np.zeros(1, np.int64)
        self.order = np.empty(0, np.int64)

    def list(self, ids: NDArray[np.int64]) -> None:
        rows, slots = np.empty(len(ids), np.int64), np.empty(len(ids), np.int32)
        count = _compact(ids, self._slot, rows, slots)
        self.rows = rows[:count]
        self.starts = np.zeros(count + 1, np.int64)
        self.order = np.empty(len(ids), np.int64)
        _positions(slots, self.starts, self.order)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class RowOptimizer:
    """Adagrad, or lazy Adam: rows without a gradient stay as they are, and so do their moments.

    table:      [N, width], updated in place
    moments:    one array (Adagrad: sums of squares) or two (Adam: means of gradients and of their squares), as the table
    steps:      how many updates there were: Adam's correction of the first steps
    unit_rows:  scale each updated row to length 1
    """

    kind: str
    table: NDArray[Any]
    moments: list[NDArray[Any]]
    lr: float
    unit_rows: bool = False
    steps: int = 0

    @classmethod
    def of(cls, kind: str, table: NDArray[Any], lr: float, *, unit_rows: bool = False) -> "RowOptimizer":
        moments = [np.zeros_like(table) for _ in range(moment_count(kind))]
        return cls(kind, table, moments, lr, unit_rows)

    def begin_step(self) -> int:
        """The number of the update that begins."""
        self.steps += 1
        return self.steps

    def update(
        self,
        touched: TouchedRows,
        gradients: NDArray[Any],
        step: int,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Update the touched rows from `first` to `last`; gradients[k] belongs to the k-th id of the list."""
        last = len(touched) if last is None else last
        kind = self.table.dtype.type
        where = (touched.rows, touched.starts, touched.order, gradients, first, last)
        if self.kind == "adagrad":
            _adagrad(self.table, self.moments[0], *where, kind(self.lr), kind(_EPSILON["adagrad"]))
        else:
            first_beta, second_beta = _BETAS
            rate = self.lr * math.sqrt(1 - second_beta**step) / (1 - first_beta**step)
            betas = (kind(first_beta), kind(second_beta))
            means, squares = self.moments
            _adam(self.table, means, squares, *where, kind(rate), *betas, kind(_EPSILON["adam"]))
        if self.unit_rows:
            _normalise(self.table, touched.rows, first, last)


def moment_count(kind: str) -> int:
    """Arrays of the table's size that an optimizer keeps."""
    if kind not in OPTIMIZERS:
        raise BadInput(f"unknown optimizer {kind!r}: choose one of {', '.join(OPTIMIZERS)}")
    return 1 if kind == "adagrad" else 2


@kernel
def gather_rows(table: Any, ids: NDArray[np.int64], out: Any) -> None:
    """out[i] = table[ids[i]]."""
    for i in range(len(ids)):
        row, into = table[ids[i]], out[i]
        for j in range(len(row)):
            into[j] = row[j]


@kernel
def _compact(ids: NDArray[np.int64], slot: NDArray[np.int32], rows: NDArray[np.int64], slots: Any) -> int:
    """Number the different ids; `slot` is -1 everywhere before and after."""
    count = 0
    for i in range(len(ids)):
        found = slot[ids[i]]
        if found < 0:
            found = count
            slot[ids[i]] = found
            rows[count] = ids[i]
            count += 1
        slots[i] = found
    for k in range(count):
        slot[rows[k]] = -1
    return count


@kernel
def _positions(slots: Any, starts: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    for i in range(len(slots)):
        starts[slots[i] + 1] += 1
    for k in range(1, len(starts)):
        starts[k] += starts[k - 1]
    for i in range(len(slots)):
        order[starts[slots[i]]] = i
        starts[slots[i]] += 1
    for k in range(len(starts) - 1, 0, -1):
        starts[k] = starts[k - 1]
    starts[0] = 0


@kernel
def _sum_rows(gradients: Any, order: NDArray[np.int64], start: int, stop: int, total: Any) -> None:
    first = gradients[order[start]]
    for j in range(len(total)):
        total[j] = first[j]
    for k in range(start + 1, stop):
        row = gradients[order[k]]
        for j in range(len(total)):
            total[j] += row[j]


@kernel
def _adagrad(
    table: Any,
    squares: Any,
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    gradients: Any,
    first: int,
    last: int,
    lr: Any,
    epsilon: Any,
) -> None:
    total = np.empty(table.shape[1], table.dtype)
    for k in range(first, last):
        _sum_rows(gradients, order, starts[k], starts[k + 1], total)
        row, square = table[rows[k]], squares[rows[k]]  # rows of their own: LLVM makes vectors of the loop
        for j in range(len(total)):
            g = total[j]
            summed = square[j] + g * g
            square[j] = summed
            row[j] -= lr * g / (np.sqrt(summed) + epsilon)


@kernel
def _adam(
    table: Any,
    means: Any,
    squares: Any,
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    gradients: Any,
    first: int,
    last: int,
    rate: Any,
    first_beta: Any,
    second_beta: Any,
    epsilon: Any,
) -> None:
    total = np.empty(table.shape[1], table.dtype)
    one = table.dtype.type(1)
    for k in range(first, last):
        _sum_rows(gradients, order, starts[k], starts[k + 1], total)
        row, mean, square = table[rows[k]], means[rows[k]], squares[rows[k]]
        for j in range(len(total)):
            g = total[j]
            m = mean[j] + (one - first_beta) * (g - mean[j])
            v = square[j] + (one - second_beta) * (g * g - square[j])
            mean[j], square[j] = m, v
            row[j] -= rate * m / (np.sqrt(v) + epsilon)


@kernel
def _normalise(table: Any, rows: NDArray[np.int64], first: int, last: int) -> None:
    for k in range(first, last):
        row = rows[k]
        total = table.dtype.type(0)
        for j in range(table.shape[1]):
            total += table[row, j] * table[row, j]
        if total > 0:
            scale = table.dtype.type(1) / np.sqrt(total)
            for j in range(table.shape[1]):
                table[row, j] *= scale

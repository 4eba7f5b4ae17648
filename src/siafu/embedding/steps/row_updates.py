"""Updates of some rows of a table: gradients that meet in a row are added up, then the optimizer steps once.

A table of bfloat16 (of uint16, see `float_bits`) is computed with in float32. What is written back is rounded up or down by chance, as near
as it is: rounded to the nearest, small steps would never arrive, and sums of squares would stop to grow. The chance is a hash of the update's
number and the row's place in it, the same on any number of threads.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.jit import kernel
from siafu.base.prefetch import prefetch
from siafu.embedding.embed_options import OPTIMIZERS
from siafu.embedding.steps.float_bits import computed_in, float_as_bits, widen

_EPSILON = {"adagrad": 1e-10, "adam": 1e-8}  # as torch.optim has them
_BETAS = (0.9, 0.999)
_AHEAD = 4  # rows that are brought near before they are read
_LINE = 64  # bytes of a line of the cache


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
        kind = computed_in(self.table.dtype).type
        where = (touched.rows, touched.starts, touched.order, gradients, first, last, np.uint32(step))
        if self.kind == "adagrad":
            _adagrad(self.table, self.moments[0], *where, kind(self.lr), kind(_EPSILON["adagrad"]))
        else:
            first_beta, second_beta = _BETAS
            rate = self.lr * math.sqrt(1 - second_beta**step) / (1 - first_beta**step)
            betas = (kind(first_beta), kind(second_beta))
            means, squares = self.moments
            _adam(self.table, means, squares, *where, kind(rate), *betas, kind(_EPSILON["adam"]))
        if self.unit_rows:
            _normalise(self.table, touched.rows, first, last, kind(1))


def moment_count(kind: str) -> int:
    """Arrays of the table's size that an optimizer keeps."""
    if kind not in OPTIMIZERS:
        raise BadInput(f"unknown optimizer {kind!r}: choose one of {', '.join(OPTIMIZERS)}")
    return 1 if kind == "adagrad" else 2


def _narrow(x: Any, old: Any, chance: Any) -> Any:
    """A number as a table has it, of the type of `old`; chance: 16 random bits"""
    return x


@overload(_narrow)  # type: ignore[untyped-decorator]
def _narrow_compiled(x: Any, old: Any, chance: Any) -> Any:
    def same(x: Any, old: Any, chance: Any) -> Any:
        return x

    def brief(x: Any, old: Any, chance: Any) -> Any:
        return np.uint16(np.uint32(np.uint32(float_as_bits(x)) + chance) >> np.uint32(16))

    return brief if old == types.uint16 else same


def _chance(step: Any, number: Any, column: Any) -> Any:
    """32 random bits of a number of an update's `number`-th row: MurmurHash's last step. On disk, a row's place in the table is chance."""
    raise NotImplementedError("compiled only")


@overload(_chance)  # type: ignore[untyped-decorator]
def _chance_compiled(step: Any, number: Any, column: Any) -> Any:
    first, second, odd = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35), np.uint32(0x9E3779B9)
    sixteen, thirteen = np.uint32(16), np.uint32(13)

    def chance(step: Any, number: Any, column: Any) -> Any:
        h = np.uint32(step * first) ^ np.uint32(np.uint32(number) * second)
        h = np.uint32(h + np.uint32(column) * odd)
        h = np.uint32((h ^ (h >> sixteen)) * first)
        h = np.uint32((h ^ (h >> thirteen)) * second)
        return np.uint32(h ^ (h >> sixteen))

    return chance


@kernel
def _prefetch_row(row: Any) -> None:
    """Bring a row near, each line of the cache of it."""
    step = _LINE // row.itemsize
    for j in range(0, len(row), step):
        prefetch(row, j)


@kernel
def gather_rows(table: Any, ids: NDArray[np.int64], out: Any) -> None:
    """out[i] = table[ids[i]]."""
    for i in range(len(ids)):  # rows do not wait for each other: the processor brings them near by itself
        row, into = table[ids[i]], out[i]
        for j in range(len(row)):
            into[j] = widen(row[j])


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
    step: Any,
    lr: Any,
    epsilon: Any,
) -> None:
    total = np.empty(table.shape[1], gradients.dtype)
    low, sixteen = np.uint32(0xFFFF), np.uint32(16)
    for k in range(first, last):
        if k + _AHEAD < last:
            _prefetch_row(table[rows[k + _AHEAD]])
            _prefetch_row(squares[rows[k + _AHEAD]])
            _prefetch_row(gradients[order[starts[k + _AHEAD]]])
        _sum_rows(gradients, order, starts[k], starts[k + 1], total)
        row, square = table[rows[k]], squares[rows[k]]  # rows of their own: LLVM makes vectors of the loop
        for j in range(len(total)):
            g = total[j]
            chance = _chance(step, k, j)
            summed = widen(square[j]) + g * g
            square[j] = _narrow(summed, square[j], chance & low)
            new = widen(row[j]) - lr * g / (np.sqrt(summed) + epsilon)
            row[j] = _narrow(new, row[j], chance >> sixteen)


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
    step: Any,
    rate: Any,
    first_beta: Any,
    second_beta: Any,
    epsilon: Any,
) -> None:
    total = np.empty(table.shape[1], gradients.dtype)
    one, low, sixteen = gradients.dtype.type(1), np.uint32(0xFFFF), np.uint32(16)
    for k in range(first, last):
        _sum_rows(gradients, order, starts[k], starts[k + 1], total)
        row, mean, square = table[rows[k]], means[rows[k]], squares[rows[k]]
        for j in range(len(total)):
            g = total[j]
            chance, other = _chance(step, k, j), _chance(step, k, ~j)
            m = widen(mean[j]) + (one - first_beta) * (g - widen(mean[j]))
            v = widen(square[j]) + (one - second_beta) * (g * g - widen(square[j]))
            mean[j], square[j] = _narrow(m, mean[j], other & low), _narrow(v, square[j], chance & low)
            new = widen(row[j]) - rate * m / (np.sqrt(v) + epsilon)
            row[j] = _narrow(new, row[j], chance >> sixteen)


@kernel
def _normalise(table: Any, rows: NDArray[np.int64], first: int, last: int, one: Any) -> None:
    half = np.uint32(0x8000)  # to the nearest
    for k in range(first, last):
        row = rows[k]
        total = one - one
        for j in range(table.shape[1]):
            total += widen(table[row, j]) * widen(table[row, j])
        if total > 0:
            scale = one / np.sqrt(total)
            for j in range(table.shape[1]):
                table[row, j] = _narrow(widen(table[row, j]) * scale, table[row, j], half)

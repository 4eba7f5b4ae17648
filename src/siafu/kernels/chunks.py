"""Rows shared out over threads so that each chunk has about as many edges."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count

EVERY = np.empty(0, np.int64)
"""The list of rows that stands for all: kernels that take long to compile always get a list, and so have one form, not two."""

_CHUNKS_PER_THREAD = 4  # so that a thread that lost the core for a while does not hold up the rest
_WORK_AT_LEAST = 1 << 17  # numbers to read: less is done at once by the calling thread


def equal_chunks(indptr: NDArray[np.int64], count: int) -> list[tuple[int, int]]:
    """Up to `count` ranges of rows, equal in edges plus rows; empty ones are left out."""
    rows = len(indptr) - 1
    total = int(indptr[-1] - indptr[0]) + rows
    bounds = [_row_before_cost(indptr, total * k // count) for k in range(count)] + [rows]
    return [(lo, hi) for lo, hi in itertools.pairwise(bounds) if lo < hi]


def over_rows(indptr: NDArray[np.int64], columns: int, work: Callable[[int, int], None]) -> None:
    """`work(first, last)` over all rows: on every thread where that pays, else here."""
    rows = len(indptr) - 1
    if (int(indptr[-1]) + rows) * columns < _WORK_AT_LEAST or thread_count() == 1:
        work(0, rows)
        return
    chunks = equal_chunks(indptr, thread_count() * _CHUNKS_PER_THREAD)
    run_all(lambda chunk: work(chunk[0], chunk[1]), chunks)


def row_list(picked: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Row numbers as kernels that take long to compile want them: `EVERY` for None."""
    return EVERY if picked is None else picked


@kernel
def row_at(picked: Any, position: int) -> int:
    """The row at a position of the list `picked`, or the position itself where it is None or empty."""
    if picked is None:
        return position
    if len(picked) == 0:
        return position
    return picked[position]  # type: ignore[no-any-return]


@kernel
def _row_before_cost(indptr: NDArray[np.int64], cost: int) -> int:
    """The first row before which there are at least `cost` edges plus rows."""
    lo, hi = 0, len(indptr) - 1
    while lo < hi:
        middle = (lo + hi) // 2
        if indptr[middle] - indptr[0] + middle < cost:
            lo = middle + 1
        else:
            hi = middle
    return lo

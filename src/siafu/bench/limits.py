"""Limits of this machine: matrix products at their measured peak, gathers at their measured bandwidth."""

import timeit
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from siafu.base.threads import run_all, thread_count
from siafu.kernels import block_edges, pack, sum_blocks_range, zero_table
from siafu.runtime.one_thread import one_thread, use_one_thread


@lru_cache
def product_peak(rows: int = 4096, inner: int = 602, columns: int = 128) -> float:
    """Floating-point operations a second of float32 products of this shape, one on each thread, rows in the cache."""
    ends = [(torch.randn(rows, inner), torch.randn(inner, columns)) for _ in range(thread_count())]
    with one_thread():
        seconds = _best(lambda: run_all(_multiply, ends))
    return 8 * thread_count() * 2 * rows * inner * columns / seconds


def _multiply(pair: tuple[Tensor, Tensor]) -> None:
    use_one_thread()
    for _ in range(8):
        torch.mm(*pair)


@lru_cache
def near_bandwidth(columns: int, dtype: type[np.generic], sources: int = 4096) -> float:
    """Bytes a second that threads gather from rows in their own cache, in a random order, with long rows of edges."""
    rng = np.random.default_rng(0)
    degree, count = 2048, 512
    indptr = np.arange(count + 1, dtype=np.int64) * degree
    indices = np.sort(rng.integers(0, sources, (count, degree)).astype(np.int32), axis=1)
    rng.permuted(indices, axis=1, out=indices)  # one block: any order of sources will do
    blocks = block_edges(indptr, indices.ravel(), None, sources, sources=sources)
    values = rng.standard_normal((sources, columns)).astype(np.float32)
    tables = [pack(values.copy(), None, dtype) for _ in range(thread_count())]
    outs = [zero_table(count, columns, np.float32) for _ in tables]

    def gather(number: int) -> None:
        sum_blocks_range(*blocks, tables[number], None, None, outs[number], None, 0, count)

    seconds = _best(lambda: run_all(gather, range(len(tables))))
    row_bytes = int(tables[0].shape[1]) * tables[0].itemsize
    return len(tables) * indices.size * row_bytes / seconds


def _best(work: Callable[[], object], repeats: int = 5) -> float:
    return min(timeit.repeat(work, number=1, repeat=repeats + 1)[1:])  # the first warms up

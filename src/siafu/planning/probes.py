"""Probes: what one core does in a second while all of the machine's cores do the same.

Each measures with the kernels and operations that training itself uses, on sizes that training meets.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.threads import thread_count
from siafu.kernels import (
    EVERY,
    LANES,
    Attention,
    Table,
    attend_adjoint_range,
    attend_range,
    block_edges,
    near_cache_bytes,
    sum_blocks_range,
    sum_range,
    zero_table,
)
from siafu.nn.dropout import drop_rows
from siafu.runtime.one_thread import one_thread, use_one_thread
from siafu.virtual.costs import USUAL_DEGREE, CoreSpeed, Curve, EdgeCosts

ProbeCall = Callable[[], object]

PRODUCT_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512)
ROW_BYTES = (64, 128, 192, 256, 512)
TABLE_BYTES = (1 << 20, 1 << 23, 1 << 26, 1 << 29)

_ROUND_SECONDS = 0.005  # of one round: long against the time to start it, short enough to find a quiet moment
_ROUNDS = 16
_BLOCK_ROWS = 2048  # rows of a product that are in the cache at a time
_BLOCK_WIDTH = 64  # columns of a table that is as large as a core's cache: what a block of a tensor task is
_OTHER_WIDTH = 128  # of a product's two fixed sizes the one that is not the smaller
_EDGES = 1 << 19
_DENSE_BLOCKS, _DENSE_VISIT, _DENSE_ROWS = 8, 8, 2048
_HEADS, _HEAD_COLUMNS = 8, 8
# A row's last vector of edges is half empty, as it is on the average.
_DEGREES = (LANES // 2, 4 * LANES + LANES // 2)
_ATTENTION_TABLE = 1 << 24
_LARGE = 1 << 26  # bytes: beyond a core's share of any cache


@dataclass(frozen=True, slots=True)
class ProbeThreads:
    """Threads that all do the same at the same time."""

    threads: int
    pool: ThreadPoolExecutor

    def seconds(self, make: Callable[[], ProbeCall]) -> float:
        """Seconds of one call of a thread while the others make theirs; the best of a few rounds.

        make: makes the call of a thread, with tensors of its own
        """
        calls = [make() for _ in range(self.threads)]
        self._round(calls, 1)
        times = max(1, round(_ROUND_SECONDS / max(self._round(calls, 1), 1e-7)))
        return min(self._round(calls, times) for _ in range(_ROUNDS)) / times

    def _round(self, calls: list[ProbeCall], times: int) -> float:
        # A thread's own time: what other processes take of its core in the meantime is not what the call takes.
        def work(call: ProbeCall) -> float:
            began = time.thread_time()
            for _ in range(times):
                call()
            return time.thread_time() - began

        return max(self.pool.map(work, calls))


@contextmanager
def all_cores() -> Iterator[ProbeThreads]:
    """Threads, as many as training would use, each with PyTorch to itself."""
    with one_thread(), ThreadPoolExecutor(thread_count(), initializer=use_one_thread) as pool:
        yield ProbeThreads(thread_count(), pool)


def core_rates(cores: ProbeThreads) -> CoreSpeed:
    """Rates of a core on tensors."""
    drawn = np.ones((_BLOCK_ROWS, 64), np.float32), np.arange(_BLOCK_ROWS, dtype=np.int64)
    block = _block()
    return CoreSpeed(
        products=Curve(tuple((width, _products(cores, width)) for width in PRODUCT_WIDTHS)),
        stream=3 * block.nbytes / cores.seconds(lambda: partial(torch.add, _block(), _block())),
        draws=drawn[0].size
        / cores.seconds(lambda: partial(drop_rows, drawn[0].copy(), drawn[1], 0, 1, 0.5, 0)),
        call_seconds=cores.seconds(lambda: partial(torch.add, torch.randn(8, 8), torch.randn(8, 8))),
        functions=2 * block.numel() / cores.seconds(lambda: partial(_two_functions, _block())),
        memory=2
        * _LARGE
        / cores.seconds(lambda: partial(torch.empty(_LARGE // 4).copy_, torch.ones(_LARGE // 4))),
    )


def edge_costs(cores: ProbeThreads) -> EdgeCosts:
    """Seconds of an edge of a gather on a core, by the size of rows and of the table they are picked from."""
    sparse = [Curve(tuple((row, _sparse(cores, row, table)) for row in ROW_BYTES)) for table in TABLE_BYTES]
    dense = Curve(tuple((row, _dense(cores, row)) for row in ROW_BYTES))
    return EdgeCosts(tuple(map(float, TABLE_BYTES)), tuple(sparse), dense)


@dataclass(frozen=True, slots=True)
class RowCosts:
    """Seconds of gathers besides picking rows: as `Machine` has them."""

    attention: tuple[float, float]
    attention_rows: tuple[float, float]
    row_seconds: float


def row_costs(cores: ProbeThreads) -> RowCosts:
    """Seconds of an edge and of a row, from rows with few edges and rows with many."""
    columns = _HEADS * _HEAD_COLUMNS
    sources = _ATTENTION_TABLE // (4 * columns)
    rows = _ones(sources, columns)
    found = []
    for degree in _DEGREES:
        indptr, indices = _random_edges(sources, degree=degree)
        plain = _gathering(cores, indptr, indices, rows)
        softmax = [max(0.0, each - plain) / (_HEADS + 1) for each in _attending(cores, indptr, indices, rows)]
        found.append([each / (len(indptr) - 1) for each in (plain, *softmax)])
    # Of a row with so many edges: gathered, and one head of its softmax forth and back.
    few, many = found
    slopes = [max(0.0, b - a) / (_DEGREES[1] - _DEGREES[0]) for a, b in zip(few, many, strict=True)]
    row, forth, back = (max(0.0, each - _DEGREES[0] * slope) for each, slope in zip(few, slopes, strict=True))
    return RowCosts((slopes[1], slopes[2]), (forth, back), row)


def _products(cores: ProbeThreads, width: int) -> float:
    """FLOP/s of the three products of a linear layer, forth and back, one after the other."""

    def make() -> ProbeCall:
        x, g = torch.randn(_BLOCK_ROWS, _OTHER_WIDTH), torch.randn(_BLOCK_ROWS, width)
        weight = torch.randn(_OTHER_WIDTH, width)
        return lambda: (torch.mm(x, weight), torch.mm(g, weight.T), torch.mm(x.T, g))

    return 3 * 2 * _BLOCK_ROWS * _OTHER_WIDTH * width / cores.seconds(make)


def _block() -> torch.Tensor:
    """Rows that `siafu.server.lane` computes at a time: a table as large as a core's cache."""
    return torch.randn(near_cache_bytes() // (4 * _BLOCK_WIDTH), _BLOCK_WIDTH)


def _two_functions(values: torch.Tensor) -> None:
    """Two that models are made of: a softmax's logarithm and an exponential's bend."""
    torch.log_softmax(values, 1)
    torch.nn.functional.elu(values)


def _sparse(cores: ProbeThreads, row_bytes: int, table_bytes: int) -> float:
    sources = table_bytes // row_bytes
    indptr, indices = _random_edges(sources)
    return _gathering(cores, indptr, indices, _ones(sources, row_bytes // 4)) / len(indices)


def _gathering(
    cores: ProbeThreads, indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: Table
) -> float:
    count = len(indptr) - 1

    def make() -> ProbeCall:
        out = zero_table(count, rows.shape[1], np.float32)
        return partial(sum_range, indptr, indices, None, rows, None, None, out, None, 0, count)

    return cores.seconds(make)


def _dense(cores: ProbeThreads, row_bytes: int) -> float:
    """Block by block, with as many edges a visit as make blocks worth their while."""
    size = min(1 << 16, 1 << (int(0.8 * near_cache_bytes()) // row_bytes).bit_length() - 1)
    sources, degree = _DENSE_BLOCKS * size, _DENSE_BLOCKS * _DENSE_VISIT
    indptr, indices = _random_edges(sources, rows=_DENSE_ROWS, degree=degree)
    blocks = block_edges(indptr, indices, None, size, sources=sources)
    rows = _ones(sources, row_bytes // 4)

    def make() -> ProbeCall:
        out = zero_table(_DENSE_ROWS, row_bytes // 4, np.float32)
        return lambda: sum_blocks_range(*blocks, rows, None, None, out, None, 0, _DENSE_ROWS)

    return cores.seconds(make) / len(indices)


def _attending(
    cores: ProbeThreads, indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: Table
) -> tuple[float, float]:
    how = Attention(_HEADS, _HEAD_COLUMNS, 0.2, self_loops=False)
    count, sources = len(indptr) - 1, len(rows)
    logits = np.random.default_rng(0).standard_normal((sources, _HEADS), dtype=np.float32)
    targets = np.concatenate([logits, np.ones_like(logits), logits], axis=1)

    def forth() -> ProbeCall:
        out, positive = (zero_table(count, rows.shape[1], np.float32) for _ in range(2))
        log_sum, share = (np.zeros((count, _HEADS), np.float32) for _ in range(2))
        given = (indptr, indices, rows, logits, logits[:count], *how.arguments, EVERY)
        return partial(attend_range, *given, out, log_sum, positive, share, EVERY, 0, count)

    def back() -> ProbeCall:
        out, of_source = zero_table(count, rows.shape[1], np.float32), np.zeros((count, _HEADS), np.float32)
        given = (indptr, indices, rows, logits, targets, rows, *how.arguments, EVERY)
        return partial(attend_adjoint_range, *given, out, of_source, 0, count)

    return cores.seconds(forth), cores.seconds(back)


def _random_edges(
    sources: int, *, rows: int | None = None, degree: int = USUAL_DEGREE
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """A CSR in which every row has so many sources, drawn alike and ascending."""
    count = min(_EDGES // degree, sources) if rows is None else rows
    drawn = np.random.default_rng(0).integers(0, sources, (count, degree), dtype=np.int32)
    drawn.sort(axis=1)
    return np.arange(count + 1, dtype=np.int64) * degree, drawn.ravel()


def _ones(rows: int, columns: int) -> Table:
    table = zero_table(rows, columns, np.float32)
    table[:] = 1.0
    return table

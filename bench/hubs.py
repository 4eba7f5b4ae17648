"""One row with 10 M in-edges among 1 M others: summed as a row like others, by one thread, and in groups over threads.

    python bench/hubs.py

CPU seconds of every piece of work are measured on its own thread and laid on two threads in the order in which they would be
taken: that holds on a machine that has other work, too. Sources ascend within a row, as in every graph here: the hub's rows are read
in order, far faster than those of the others, so what is gained depends on how many edges the others have.
"""

import heapq
import time
from collections.abc import Callable, Iterable

import numpy as np

from siafu.kernels import (
    HubEdges,
    cut_hubs,
    empty_table,
    equal_chunks,
    hub_rows,
    pack,
    sum_range,
    without_hubs,
)
from siafu.kernels.hubs import add_groups

VERTICES, HUB = 1_000_000, 10_000_000
REPEATS = 3


def edges(at: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """A graph whose row `at` has HUB edges more than its share of the others."""
    rng = np.random.default_rng(0)
    degrees = rng.multinomial(others, np.full(VERTICES, 1 / VERTICES))
    degrees[at] += HUB
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    rows = np.repeat(np.arange(VERTICES, dtype=np.int64), degrees)
    keys = rows * VERTICES + rng.integers(0, VERTICES, len(rows))
    keys.sort()
    return indptr, (keys % VERTICES).astype(np.int32)


def best_seconds(work: Callable[[], object]) -> float:
    best = np.inf
    for _ in range(REPEATS):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


def on_threads(seconds: Iterable[float], threads: int) -> float:
    """When the last of some pieces of work ends, each taken by the thread that is free first."""
    busy = [0.0] * threads
    for each in seconds:
        heapq.heapreplace(busy, busy[0] + each)
    return max(busy)


def measure(at: int, indptr: np.ndarray, indices: np.ndarray, width: int) -> str:
    """A row of the table."""
    values = np.random.default_rng(0).standard_normal((VERTICES, width), dtype=np.float32)
    rows, out = pack(values, None, np.float32), empty_table(VERTICES, width, np.float32)
    long_rows = hub_rows(indptr)
    (hub,) = cut_hubs(long_rows, (indptr, indices), self_loops=True)
    apart = HubEdges([hub], long_rows, indices, None)
    sums, count = empty_table(len(hub.indptr) - 1, width, np.float32), len(hub.groups)

    def walked(parts: list[tuple[int, int]]) -> float:
        return best_seconds(
            lambda: [sum_range(indptr, indices, None, rows, None, None, out, None, *part) for part in parts]
        )

    def grouped(k: int) -> float:
        bounds = count * k // 8, count * (k + 1) // 8
        edges = hub.indptr, indices, None
        return best_seconds(lambda: sum_range(*edges, rows, None, None, sums, hub.groups, *bounds))

    one = [walked([chunk]) for chunk in equal_chunks(indptr, 8)]
    rest = [walked(apart.between(*chunk)) for chunk in equal_chunks(without_hubs(indptr, long_rows), 8)]
    groups = [grouped(k) for k in range(8)]
    end = best_seconds(lambda: add_groups(hub.groups, sums, out, hub.row))
    before, after = on_threads(one, 2), on_threads(rest, 2) + on_threads(groups, 2) + end
    alone = sum(rest) + sum(groups) + end
    return (
        f"| {at:,} | {width} | {before:.3f} s | {after:.3f} s | {before / after:.2f} | {alone / after:.2f} |"
    )


def main() -> None:
    print(
        "| other edges | hub's row | width | one walk, 2 threads | groups, 2 threads | ratio | groups: 1 thread / 2 |"
    )
    print("|---|---|---|---|---|---|---|")
    for others in (1_000_000, 10_000_000):
        for at in (0, VERTICES // 2, VERTICES - 1):
            graph = edges(at, others)
            for width in (32, 128):
                print(f"| {others:,} {measure(at, *graph, width)}", flush=True)


if __name__ == "__main__":
    main()

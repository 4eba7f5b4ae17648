"""A sum gather in one walk, and in blocks for the cache that cores share: CPU seconds of all threads, side by side.

    siafu generate products --scale 0.2 --shuffle -o products.store
    python bench/shared_cache.py products.store [STORE …] [--widths 48,128] [--times 3] [--sizes 16384,65536]

Rows are gathered in as many pieces as a training has intervals, four a thread. Both ways take turns, the least seconds of each count, and
the bits must be equal. `--sizes` tries blocks of other sizes than the rules choose. A graph that is dense enough for blocks of a core's own cache is left out.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from siafu.base.threads import run_all, thread_count
from siafu.graph import Graph, read_store
from siafu.kernels import (
    Table,
    block_edges,
    block_size,
    empty_table,
    equal_chunks,
    sum_far_blocks_range,
    sum_range,
)
from siafu.kernels.advice.advisor import WalkShape

_ROWS = 1 << 14  # that are made at a time


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--widths", default="48,128")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--sizes", default="")
    asked = parser.parse_args()
    print("| graph | width | rows, MB | block, MB | made, CPU s | one walk, CPU s | blocks, CPU s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for store in asked.stores:
        graph = read_store(store, verify=False)
        for width in map(int, asked.widths.split(",")):
            measure(graph, width, asked.times, [int(each) for each in asked.sizes.split(",") if each])


def measure(graph: Graph, width: int, times: int, sizes: list[int]) -> None:
    """Print a row for each size of blocks."""
    vertices, edges = graph.num_vertices, graph.num_edges
    indptr, indices = np.array(graph.indptr), np.array(graph.indices)
    rows, out = filled(vertices, width), empty_table(vertices, width, np.float32)
    length = rows.strides[0]
    if block_size(vertices, edges, length) is not None:
        return
    rule = WalkShape(vertices, edges, vertices, length).far_block_size
    pieces = equal_chunks(indptr, 4 * thread_count())

    def walk() -> None:
        run_all(lambda piece: sum_range(indptr, indices, None, rows, None, None, out, None, *piece), pieces)

    for size in sizes or [rule or 1 << 14]:
        began = time.process_time()
        blocks = block_edges(indptr, indices, None, size)
        made = time.process_time() - began

        def in_blocks(blocks=blocks) -> None:  # type: ignore[no-untyped-def]
            run_all(lambda piece: sum_far_blocks_range(*blocks, rows, None, None, out, None, *piece), pieces)

        walk()
        expected = out.copy()
        in_blocks()
        assert np.array_equal(out, expected)
        del expected
        one, blocked = (
            min(each) for each in zip(*((cpu(walk), cpu(in_blocks)) for _ in range(times)), strict=True)
        )
        chosen = "" if size == rule else " (the rules take one walk)" if rule is None else " (not the rules')"
        print(
            f"| {graph.name} | {width} | {vertices * length / 1e6:,.0f} | {size * length / 1e6:.1f}{chosen} | {made:.2f} | "
            f"{one:.2f} | {blocked:.2f} | {blocked / one:.2f} |",
            flush=True,
        )


def cpu(work) -> float:  # type: ignore[no-untyped-def]
    began = time.process_time()
    work()
    return time.process_time() - began


def filled(rows: int, width: int) -> Table:
    table, rng = empty_table(rows, width, np.float32), np.random.default_rng(0)
    for first in range(0, rows, _ROWS):
        part = table[first : first + _ROWS]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    return table


if __name__ == "__main__":
    main()

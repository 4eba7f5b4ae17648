"""A sum gather side by side: one walk, buckets in memory, and sources on disk.

    siafu generate products -o products.store
    python bench/out_of_core.py products.store [--width 128] [--groups 4] [--partitions 16] [--scratch DIR] [--times 3]

Every way has the same bits; each is run some times, and the least seconds count. Busy is CPU time over wall time times threads: of the whole
process for compute; for the disk, time inside reads and writes over wall time. Hidden is the share of the disk's time for which no
thread waited. With --groups 4 sums of a quarter of the rows are in memory.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import siafu
from siafu.base.threads import run_all, thread_count
from siafu.graph.partition import Partition
from siafu.kernels import Table, add_bucket, empty_table, equal_chunks, finish_sums, first_edges, gather_sum
from siafu.nn import Sum
from siafu.server.edges import ServerEdges
from siafu.server.gathers.on_disk.disk_sum_gather import DiskSumGather
from siafu.server.memory.disk_share import DiskCut, DiskShare, equal_ranges
from siafu.tables import ScratchDirectory

_ROWS = 1 << 14  # that are made at a time


@dataclass
class Took:
    wall: float
    cpu: float

    def __str__(self) -> str:
        busy = self.cpu / self.wall / thread_count()
        return f"wall {self.wall:7.2f} s  cpu {self.cpu:7.2f} s  compute busy {busy:4.0%}"


def best(work: Callable[[], object], times: int) -> Took:
    found = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return Took(min(w for w, _ in found), min(c for _, c in found))


def filled(rows: int, width: int) -> Table:
    table = empty_table(rows, width, np.float32)
    rng = np.random.default_rng(0)
    for first in range(0, rows, _ROWS):
        part = table[first : first + _ROWS]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    return table


def by_buckets(graph: siafu.Graph, rows: Table, out: Table, partitions: int) -> None:
    """Each thread takes a chunk of rows through all partitions of the sources, which are in memory."""
    indptr, indices, _ = graph.in_edges
    ranges = equal_ranges(len(rows), partitions)
    at = first_edges(indptr)

    def work(chunk: tuple[int, int]) -> None:
        first, last = chunk
        out[first:last] = 0
        for low, high in ranges:
            add_bucket(indptr, indices, None, rows[low:high], low, high, -1, at, out, first, last)
        finish_sums(None, out, first, last)

    run_all(work, equal_chunks(indptr, 8 * thread_count()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    graph = siafu.load(str(asked.store))
    vertices, (indptr, indices, _) = graph.num_vertices, graph.in_edges
    rows, out = filled(vertices, asked.width), empty_table(vertices, asked.width, np.float32)
    print(
        f"{vertices:,} vertices, {len(indices):,} edges, {asked.width} wide: table of {rows.nbytes / 1e6:,.0f} MB"
    )
    one = best(lambda: gather_sum(indptr, indices, None, rows, out=out), asked.times)
    print(f"one walk             {one}")
    want = out.copy()
    buckets = one
    for partitions in (1, 2, 4, 8, 16, 32):
        took = best(lambda count=partitions: by_buckets(graph, rows, out, count), asked.times)  # type: ignore[misc]
        same = np.array_equal(out, want)
        print(f"buckets, {partitions:2d} in memory {took}  x{took.cpu / one.cpu:.2f}  equal bits: {same}")
        if partitions == asked.partitions:
            buckets = took
    on_disk(graph, rows, want, asked, one, buckets)


def on_disk(
    graph: siafu.Graph, rows: Table, want: Table, asked: argparse.Namespace, one: Took, buckets: Took
) -> None:
    server = ServerEdges.of(graph, Partition("whole", 1, np.zeros(graph.num_vertices, np.uint16)), 0)
    scratch = ScratchDirectory(asked.scratch)
    share = DiskShare(DiskCut(asked.scratch, asked.groups, asked.partitions), scratch)
    gather = DiskSumGather(Sum(weighted=False), server, asked.width, torch.float32, share, training=False)
    for first in range(0, len(rows), _ROWS):
        last = min(first + _ROWS, len(rows))
        gather.send(first, last, (torch.from_numpy(rows[first:last, : asked.width]),))
    share.writer.flush()
    same, traffic = [], scratch.traffic
    before = traffic.bytes_read, traffic.seconds_busy, traffic.seconds_waited

    def walk() -> None:
        for first, last in equal_ranges(graph.num_vertices, asked.groups):
            found = gather.forward(first, last).numpy()
            same.append(np.array_equal(found, want[first:last, : asked.width]))

    took = best(walk, asked.times)
    reads = (traffic.bytes_read - before[0]) / asked.times
    busy = (traffic.seconds_busy - before[1]) / asked.times
    idle = (traffic.seconds_waited - before[2]) / asked.times
    print(
        f"on disk              {took}  x{took.wall / one.wall:.2f} of one walk, "
        f"x{took.wall / buckets.wall:.2f} of {asked.partitions} buckets in memory  equal bits: {all(same)}\n"
        f"  {asked.groups} groups, {asked.partitions} partitions: read {reads / 1e9:.2f} GB a gather, "
        f"{reads / rows.nbytes:.1f} tables, disk busy {busy / took.wall:.0%}, hidden {1 - idle / max(busy, 1e-9):.0%}"
    )


if __name__ == "__main__":
    main()

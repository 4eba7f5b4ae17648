"""GroupSums: sums of a group of rows whose sources are read one partition after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import run_all, thread_count
from siafu.graph.csr import Csr
from siafu.kernels import (
    HubEdges,
    HubSum,
    Table,
    add_bucket,
    equal_chunks,
    finish_sums,
    first_edges,
    start_sums,
    without_hubs,
)
from siafu.server.gathers.on_disk.edge_buckets import EdgeBuckets, rows_between
from siafu.server.memory.disk_share import equal_ranges
from siafu.tables import MemoryTable, PartitionReader, RowTable, lent_buffer

CHUNKS_PER_THREAD = 4
_ROWS_AT_ONCE = 1 << 14  # own rows that a thread reads at a time, where there are self-loops

Factors = NDArray[Any] | None
_Edges = tuple[NDArray[np.int64], NDArray[Any], Factors]
_Bucket = tuple[_Edges, NDArray[np.int64], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, eq=False)
class GroupSums:
    """How groups of one gather are summed; the bits are those of one walk over all edges.

    table:       the sources, times their factors
    edges:       by row
    weights:     of the edges, in the type of the sums; None: each weighs 1
    hubs:        rows that are summed apart
    self_weight: of each row's own loop, which takes the place of stored ones; None: the stored ones count
    scale:       each row's factor at last; None: 1
    needed:      rows that are gathered for, ascending; None: all
    width, kind: of the sums
    partitions:  ranges of sources that follow each other and cover all
    buckets:     the edges in the order of groups and partitions; None: `edges` are walked
    """

    table: RowTable
    edges: Csr
    weights: Factors
    hubs: HubEdges
    self_weight: Factors
    scale: Factors
    needed: NDArray[np.int64] | None
    width: int
    kind: np.dtype[Any]
    partitions: int
    buckets: EdgeBuckets | None = None

    def __call__(self, first: int, last: int, reader: PartitionReader) -> Table:
        """The sums of rows first:last: what partitions of the sources give, one after the other, on every core."""
        sums = group_buffer(last - first, self.width, self.kind)
        self._start(sums, first)
        hubs, long_rows = self._hubs(first, last, sums)
        own, ranges = (
            -1 if self.self_weight is None else first,
            equal_ranges(self.table.rows, self.partitions),
        )
        for (low, high), (edges, at, chunks) in zip(ranges, self._walk(first, last, long_rows), strict=True):
            with reader.next() as (_, (rows,)):
                add = partial(add_bucket, *edges, rows, low, high, own, at, sums)
                run_all(lambda chunk, add=add: add(*chunk), chunks)  # type: ignore[misc]
                for hub in hubs:
                    hub.add(rows, low, high)
        for hub in hubs:
            hub.end()
        factors = None if self.scale is None else self.scale[first:last]
        chunks = _chunks(self.edges.indptr[first : last + 1])
        run_all(lambda chunk: finish_sums(factors, sums, *chunk), chunks)
        return sums

    def _walk(self, first: int, last: int, long_rows: NDArray[np.int64]) -> Iterator[_Bucket]:
        """For each partition the edges of rows first:last, the next of each row, and rows that threads take."""
        if self.buckets is not None:
            for partition in range(len(equal_ranges(self.table.rows, self.partitions))):
                indptr, indices, weights = self.buckets.bucket(first, partition)
                yield (indptr, indices, weights), indptr[:-1].copy(), _chunks(indptr)
            return
        indptr = self.edges.indptr[first : last + 1]
        at = first_edges(indptr, rows_between(self.needed, first, last))
        at[long_rows] = indptr[long_rows + 1]
        edges, chunks = (indptr, self.edges.indices, self.weights), _chunks(without_hubs(indptr, long_rows))
        for _ in equal_ranges(self.table.rows, self.partitions):
            yield edges, at, chunks

    def _hubs(self, first: int, last: int, sums: Table) -> tuple[list[HubSum], NDArray[np.int64]]:
        """The hubs among rows first:last, not begun, and where they are among these rows."""
        apart = [hub for hub in self.hubs.hubs if first <= hub.row < last]
        edges = self.hubs.indices, self.hubs.weights
        begun = [HubSum(hub, *edges, sums, hub.row - first) for hub in apart]
        return begun, np.array([hub.row - first for hub in apart], np.int64)

    def _start(self, sums: Table, first: int) -> None:
        """Begin sums with self-loops, of the rows' own, or with zeros, which new memory has."""
        if self.self_weight is None:
            return
        weight = self.self_weight

        def start(lo: int) -> None:
            hi = min(lo + _ROWS_AT_ONCE, len(sums))
            buffer = lent_buffer(self.table.buffer_bytes(hi - lo))
            with self.table.waiting():
                rows = self.table.read(first + lo, first + hi, buffer)
            start_sums(rows, weight[first + lo : first + hi], sums[lo:hi], 0, hi - lo)

        run_all(start, range(0, len(sums), _ROWS_AT_ONCE))


def _chunks(indptr: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Rows with about equally many edges, for threads."""
    return equal_chunks(indptr, thread_count() * CHUNKS_PER_THREAD)


def group_buffer(rows: int, columns: int, dtype: np.dtype[Any]) -> Table:
    """Zeros for what is gathered for so many rows."""
    return MemoryTable(0, columns, dtype).buffer(rows)

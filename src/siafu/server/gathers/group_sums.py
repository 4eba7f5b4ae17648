"""GroupSums: sums of a group of rows whose sources are read one partition after the other."""

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
from siafu.server.disk_share import equal_ranges
from siafu.tables import MemoryTable, PartitionReader, RowTable, page_buffer

CHUNKS_PER_THREAD = 4
_ROWS_AT_ONCE = 1 << 14  # own rows that a thread reads at a time, where there are self-loops

Factors = NDArray[Any] | None


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

    def __call__(self, first: int, last: int, reader: PartitionReader) -> Table:
        """The sums of rows first:last: what partitions of the sources give, one after the other, on every core."""
        indptr, indices = self.edges.indptr[first : last + 1], self.edges.indices
        needed = self.needed
        inside = None if needed is None else needed[slice(*np.searchsorted(needed, (first, last)))] - first
        at = first_edges(indptr, inside)
        sums = group_buffer(last - first, self.width, self.kind)
        self._start(sums, first)
        hubs, long_rows = self._hubs(first, last, sums)
        at[long_rows] = indptr[long_rows + 1]
        chunks = equal_chunks(without_hubs(indptr, long_rows), thread_count() * CHUNKS_PER_THREAD)
        own = -1 if self.self_weight is None else first
        for low, high in equal_ranges(self.table.rows, self.partitions):
            with reader.next() as (_, (rows,)):
                add = partial(add_bucket, indptr, indices, self.weights, rows, low, high, own, at, sums)
                run_all(lambda chunk, add=add: add(*chunk), chunks)  # type: ignore[misc]
                for hub in hubs:
                    hub.add(rows, low, high)
        for hub in hubs:
            hub.end()
        factors = None if self.scale is None else self.scale[first:last]
        run_all(lambda chunk: finish_sums(factors, sums, *chunk), chunks)
        return sums

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
            buffer = page_buffer(self.table.buffer_bytes(hi - lo))
            with self.table.waiting():
                rows = self.table.read(first + lo, first + hi, buffer)
            start_sums(rows, weight[first + lo : first + hi], sums[lo:hi], 0, hi - lo)

        run_all(start, range(0, len(sums), _ROWS_AT_ONCE))


def group_buffer(rows: int, columns: int, dtype: np.dtype[Any]) -> Table:
    """Zeros for what is gathered for so many rows."""
    return MemoryTable(0, columns, dtype).buffer(rows)

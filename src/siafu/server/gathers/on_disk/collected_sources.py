"""CollectedSources: the source rows that a group of rows needs, read from disk into tables of their own.

Some gathers need all sources of a row's edges at once: a softmax whose logits are a function of both ends, a product over the edges
of a piece. For a group of rows the sources of its edges are picked out of the partitions as they are read, and numbered anew: own rows
first, others after them, ascending. So the kernels that run in memory run on them as they are, with the same bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import run_all, thread_count
from siafu.kernels import EVERY, Table, copy_rows, window
from siafu.server.edges import Walk
from siafu.server.gathers.on_disk.source_counts import SourceCounts, count_sources, mark_sources
from siafu.server.memory.disk_share import LIVE, SLOTS, DiskShare, collected_bytes, equal_ranges
from siafu.tables import GhostedTable, PartitionReader, SharedGroups, lent_buffer, page_buffer

OWN_ROWS = 1 << 11
"""Own rows that a thread reads at a time."""
_COPIED = 1 << 14  # rows that a thread copies at a time
_LOOKED_UP = 1 << 18  # edges whose sources a thread numbers at a time

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """A group of rows, numbered from 0, and what their edges read.

    first, last: the group's rows among the server's own
    indptr:      where the edges of each of its rows begin
    indices:     their sources by number: the group's rows, then others
    sources:     of each table, the rows of these numbers
    beside:      of each array in memory, likewise
    edges:       places of the edges among those of the walk
    ids:         of each number the row of the walk's tables; None: the same number
    """

    first: int
    last: int
    indptr: Ids
    indices: NDArray[Any]
    sources: list[Table]
    beside: list[NDArray[Any]]
    edges: slice
    ids: Ids | None

    def drawn(self, walk: Walk, dropout: float) -> Ids | None:
        """Ids by which dropout knows the sources; None: their numbers, or there is none."""
        if dropout == 0 or self.ids is None:
            return walk.drawn
        return self.ids if walk.drawn is None else walk.drawn[self.ids]

    def of_edges(self, values: NDArray[Any] | None) -> NDArray[Any] | None:
        """Values of these edges, out of those of the whole walk."""
        return None if values is None else values[self.edges]

    def placed(self, rows: Table, first: int, last: int) -> Table:
        """Rows first:last of the server, numbered as the group's."""
        return window(rows, first - self.first, last - self.first)

    def picked(self, needed: Ids | None, first: int, last: int) -> tuple[Ids, int, int]:
        """Those of rows first:last that are needed, as kernels take them: a list, and places in it."""
        if needed is None:
            return EVERY, first - self.first, last - self.first
        begin, end = np.searchsorted(needed, (first, last)).tolist()
        return needed[begin:end] - self.first, 0, end - begin


class CollectedSources:
    """Collects for one group after the other, whichever is asked for; any thread may ask, and use it while others do.

    If the groups that are in memory at a time would take no less than all rows, there is one group of all, whose tables are read as
    they are.

    walk:   the edges
    tables: the sources, read together
    disk:   where the tables are
    beside: arrays in memory, by the same numbers
    """

    def __init__(
        self,
        walk: Walk,
        tables: Sequence[GhostedTable],
        disk: DiskShare,
        beside: Sequence[NDArray[Any]] = (),
    ) -> None:
        self.walk, self.tables, self._disk, self._beside = walk, tables, disk, beside
        own, cut = len(walk.edges.indptr) - 1, disk.cut
        self.groups, self.partitions = (
            equal_ranges(own, cut.groups),
            equal_ranges(walk.columns, cut.partitions),
        )
        row_bytes, index = sum(table.row_bytes for table in tables), walk.edges.indices.itemsize
        found = collected_bytes(cut, own, walk.columns, self._counts(), row_bytes, index)
        if found == walk.columns * row_bytes:
            self.groups = equal_ranges(own, 1)
        self._shared = SharedGroups(self.groups, LIVE, self._collect)
        self.by_group, self.begin_anew = self._shared.parts, self._shared.begin_anew

    def parts(self, first: int, last: int) -> Iterator[tuple[Collected, int, int]]:
        """Rows first:last in ranges that groups cut, ascending, each while it is used; some rows at a time.

        All of it is to be gone through, as that of `by_group`, which has all rows of a group at a time: a group is let go of when all
        its rows were there.
        """
        for found, low, high in self.by_group(first, last):
            for begin in range(low, high, OWN_ROWS):
                yield found, begin, min(begin + OWN_ROWS, high)

    def _collect(self, first: int, last: int) -> Collected:
        self._disk.writer.flush()
        indptr, indices, _ = self.walk.edges
        columns = self.walk.columns
        if len(self.groups) == 1:
            with self.tables[0].waiting(all_threads=True):
                whole = [
                    each.read(0, columns, page_buffer(each.buffer_bytes(columns))) for each in self.tables
                ]
            edges = slice(0, len(indices))
            return Collected(first, last, indptr, indices, whole, list(self._beside), edges, None)
        others = self._others(first, last)
        edges = slice(int(indptr[first]), int(indptr[last]))
        return Collected(
            first,
            last,
            indptr[first : last + 1] - indptr[first],
            self._numbered(edges, first, last, others),
            self._picked_up(first, last, others),
            [np.concatenate([each[first:last], each[others]]) for each in self._beside],
            edges,
            np.concatenate([np.arange(first, last), others]),
        )

    def _others(self, first: int, last: int) -> Ids:
        """Sources of a group's edges that are not of the group, ascending."""
        marked = mark_sources(*self.walk.edges[:2], self.walk.picked, first, last, self.walk.columns)
        marked[first:last] = False
        return np.flatnonzero(marked)

    def _numbered(self, edges: slice, first: int, last: int, others: Ids) -> NDArray[Any]:
        """The sources of a group's edges by their new numbers; those of rows that are not needed mean nothing."""
        numbers = np.zeros(self.walk.columns, self.walk.edges.indices.dtype)
        numbers[first:last] = np.arange(last - first)
        numbers[others] = np.arange(last - first, last - first + len(others))
        read = self.walk.edges.indices[edges]
        found = np.empty_like(read)

        def look_up(at: int) -> None:
            part = slice(at, at + _LOOKED_UP)
            np.take(numbers, read[part], out=found[part], mode="clip")

        run_all(look_up, range(0, len(read), _LOOKED_UP))
        return found

    def _picked_up(self, first: int, last: int, others: Ids) -> list[Table]:
        """The rows of a group and of other sources, out of the partitions that have any."""
        found = [each.buffer(last - first + len(others)) for each in self.tables]
        bounds = [*np.searchsorted(others, [low for low, _ in self.partitions]).tolist(), len(others)]
        inside = [(max(first, low), min(last, high)) for low, high in self.partitions]
        wanted = [
            k for k in range(len(self.partitions)) if bounds[k] < bounds[k + 1] or inside[k][0] < inside[k][1]
        ]
        with PartitionReader(self.tables, self.partitions, wanted, SLOTS) as reader:
            for _ in wanted:
                with reader.next() as (k, tables):
                    begin, end = inside[k]
                    rows = np.concatenate(
                        [np.arange(begin, max(begin, end)), others[bounds[k] : bounds[k + 1]]]
                    )
                    slots = np.arange(len(rows)) + (last - first + bounds[k])
                    own = max(0, end - begin)
                    slots[:own] = rows[:own] - first
                    slots[own:] -= own
                    _copy(tables, rows - self.partitions[k][0], found, slots)
        return found

    def _counts(self) -> SourceCounts:
        key = len(self.groups)
        if key not in self.walk.counted:
            indptr, indices, _ = self.walk.edges
            self.walk.counted[key] = count_sources(
                indptr, indices, self.walk.picked, self.groups, self.walk.columns
            )
        return self.walk.counted[key]


def _copy(tables: Sequence[Table], rows: Ids, found: Sequence[Table], slots: Ids) -> None:
    chunks = range(0, len(rows), max(_COPIED, -(-len(rows) // (4 * thread_count()))))

    def copy(at: int) -> None:
        part = slice(at, at + chunks.step)
        for source, target in zip(tables, found, strict=True):
            copy_rows(source, rows[part], target, slots[part])

    run_all(copy, chunks)


def own_rows(table: GhostedTable, first: int, last: int) -> Table:
    """A copy of own rows from disk, for as long as somebody refers to it."""
    with table.waiting():
        return table.read(first, last, lent_buffer(table.buffer_bytes(last - first)))

"""DiskShare: how tables of gathers that are on disk are cut, and where they lie."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.kernels import table_row_bytes
from siafu.server.costs.held_array import Grouped, HeldArray
from siafu.server.gathers.on_disk.source_counts import SourceCounts
from siafu.tables import GhostedTable, NamedTables, ScratchDirectory, WriteBehind

WRITTEN_BEHIND = 32 << 20
"""Bytes of rows that may wait to be written."""
SLOTS = 3
"""Partitions of sources in memory at a time, at least: one is used while others are read."""
LIVE = 2
"""Groups in memory at a time whose sources are collected."""
CONSTANT_PARTITIONS = 4
"""Partitions of what constants are gathered from, for each group."""
_EDGE = 8  # bytes of a row's next edge, and of a source's number
_MARK = 1  # bytes of whether a source is wanted


@dataclass(frozen=True, slots=True)
class DiskCut:
    """How tables on disk are cut, and where they lie.

    directory:  for scratch files
    groups:     of targets, about equal in rows
    partitions: of sources, likewise
    rows:       whether rows that stay at their vertices are on disk, too
    constants:  groups of rows that constants are gathered in, which are on disk then; 0: they are in memory
    tables:     whether rows that edges read are on disk
    held:       gathers, by place, whose rows are in memory all the same
    buckets:    whether edges that sums walk are copied in the order of groups and partitions, to scratch files
    slots:      partitions that a gather has in memory at a time: those beyond the least are not read again for the next group
    """

    directory: Path
    groups: int
    partitions: int
    rows: bool = False
    constants: int = 0
    tables: bool = True
    buckets: bool = False
    held: frozenset[int] = frozenset()
    slots: int = SLOTS

    def reads(self, depth: int) -> bool:
        """Whether the gather of that place reads its rows from disk."""
        return self.tables and depth not in self.held

    @property
    def constant_partitions(self) -> int:
        """Of what constants are gathered from."""
        return CONSTANT_PARTITIONS * self.constants


class DiskShare:
    """A server's tables on disk: their files, and what writes to them.

    scratch: where files are made; None: in the cut's directory
    """

    def __init__(self, cut: DiskCut, scratch: ScratchDirectory | None = None) -> None:
        self.cut, self.scratch = cut, scratch or ScratchDirectory(cut.directory)
        self.writer = WriteBehind(WRITTEN_BEHIND)

    def close(self) -> None:
        """Let go of the files, whose space is free then; no task may run."""
        self.writer.close()

    def sources(
        self, rows: int, own: int, received: Sequence[NDArray[np.int64]], columns: int, dtype: DTypeLike
    ) -> GhostedTable:
        """A table for rows that edges read: see `GhostedTable`."""
        return GhostedTable(self.scratch, self.writer, rows, own, received, columns, dtype)

    def rows(self, own: int) -> NamedTables | None:
        """For rows that stay at their vertices, so many; None: they are in memory."""
        return NamedTables(self.scratch, self.writer, own) if self.cut.rows else None


def equal_ranges(rows: int, count: int) -> Sequence[tuple[int, int]]:
    """Ranges that follow each other and cover all rows, none empty but for one of no rows at all."""
    count = max(1, min(count, rows))
    bounds = [rows * k // count for k in range(count + 1)]
    return list(itertools.pairwise(bounds))


class Gathered(NamedTuple):
    """Of one gather: rows that it gathers for, pairs of a row and a type of its edges; rows that it gathers from.

    taken: own rows that a thread takes at a time
    apart: own rows from the first that a thread takes to the last that another does at the same time
    threads: that take rows
    """

    own: int
    types: int
    rows: int
    taken: int = 0
    apart: int = 0
    threads: int = 0


def buffer_bytes(cut: DiskCut, gathered: Gathered, array: HeldArray, summed: int) -> int:
    """Memory of one gather while it runs: groups of sums, two at least, and partitions of sources.

    Groups are made in ascending order. Those between the rows of two threads' intervals wait for the first thread.

    array:  the table that it reads
    summed: bytes of a number as it is summed
    """
    holds = array.grouped or Grouped(array.columns)
    own, types = (-(-each // cut.groups) for each in (gathered.own, gathered.types))
    live = min(max(2, 1 + -(-gathered.apart // max(1, own))), max(2, cut.groups))
    next_edge = 2 * _EDGE if cut.buckets else _EDGE
    found = 2 * own * next_edge
    if holds.rows:
        row = table_row_bytes(holds.rows, summed)
        found += live * own * row
        if own < gathered.taken:  # rows of several groups are joined
            found += gathered.threads * gathered.taken * row
    if holds.types:
        found += types * (live * table_row_bytes(holds.types, summed) + _EDGE)
    partition = -(-gathered.rows // cut.partitions)
    return found + min(cut.slots, cut.partitions) * partition * array.row_bytes


def collected_bytes(
    cut: DiskCut, own: int, columns: int, counts: SourceCounts, row_bytes: int, index: int
) -> int:
    """Memory for the sources of some groups: of two while a third of partitions is read, or of all rows if that is no more.

    own, columns: rows that are gathered for, and from
    counts:       the most that a group has
    row_bytes:    of a source, in all tables that are read together
    index:        bytes of an edge's source
    """
    rows, partition = -(-own // cut.groups), -(-columns // cut.partitions)
    group = counts.sources * (row_bytes + 2 * _EDGE) + counts.edges * index + rows * _EDGE
    apart = min(LIVE, cut.groups) * group + columns * (index + _MARK)
    apart += min(SLOTS, cut.partitions) * partition * (row_bytes + 2 * _EDGE)
    return min(apart, columns * row_bytes)

"""TargetGroups: a gather whose sources are on disk, for a group of rows at a time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from siafu.kernels import Table
from siafu.tables.partition_reader import PartitionReader
from siafu.tables.row_table import RowTable

Ranges = Sequence[tuple[int, int]]
MakeGroup = Callable[[int, int, PartitionReader], Table]
"""From a range of own rows to what is gathered for them; it takes partitions of the sources as `order` has them."""


@dataclass(slots=True)
class _Held:
    """A group that is made, and how many of its rows nobody has taken yet."""

    rows: Table
    left: int


class TargetGroups:
    """Each group is made once a pass, by the first thread that asks for a row of it; others wait, and find it made.

    Groups are made in ascending order, whoever asks first, so that the sources of the next are read ahead while tensor phases use up
    what is gathered. A group's memory is given back when all its rows were taken and nobody refers to them any more.

    tables:     the sources, read together
    groups:     ranges of own rows that follow each other and cover all
    partitions: ranges of sources, likewise
    slots:      partitions in memory at a time
    make:       makes a group; it may use all threads
    empty:      a group of no rows
    before:     called before a pass reads the sources
    order:      partitions, by number, as a group takes them; None: every one once, ascending

    waited: seconds for which threads waited for the sources
    """

    def __init__(
        self,
        tables: Sequence[RowTable],
        groups: Ranges,
        partitions: Ranges,
        slots: int,
        make: MakeGroup,
        empty: Table,
        before: Callable[[], None],
        order: Sequence[int] | None = None,
    ) -> None:
        self._tables, self._groups, self._partitions, self._slots = tables, groups, partitions, slots
        self._make, self._empty, self._before = make, empty, before
        self._order = range(len(partitions)) if order is None else order
        self._ends = np.array([last for _, last in groups])
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._next = 0
        self._reader: PartitionReader | None = None
        self.waited = 0.0

    def take(self, first: int, last: int) -> Table:
        """Sums of the rows from `first` up to `last`; each row is taken once a pass."""
        parts = [rows for _, rows in self.parts(first, last)]
        if not parts:
            return self._empty
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def parts(self, first: int, last: int) -> Iterator[tuple[int, Table]]:
        """The same group by group, with the number of the first row of each: none is made before it is asked for."""
        if first == last:
            return
        begin, end = np.searchsorted(self._ends, (first, last - 1), side="right")
        for group in range(begin, end + 1):
            with self._lock:
                found = self._part(group, first, last)
            yield max(first, self._groups[group][0]), found

    def begin_anew(self) -> None:
        """Forget a pass that was broken off."""
        with self._lock:
            self._held.clear()
            self._end_pass()

    def _part(self, group: int, first: int, last: int) -> Table:
        if group not in self._held:
            self._make_up_to(group)
        held, (lo, hi) = self._held[group], self._groups[group]
        first, last = max(first, lo), min(last, hi)
        held.left -= last - first
        if held.left == 0:
            del self._held[group]
            if not self._held and self._next == len(self._groups):
                self._end_pass()
        return held.rows[first - lo : last - lo]

    def _make_up_to(self, group: int) -> None:
        if self._reader is None:
            self._before()
            order = [*self._order] * len(self._groups)
            self._reader = PartitionReader(self._tables, self._partitions, order, self._slots)
        while self._next <= group:
            lo, hi = self._groups[self._next]
            self._held[self._next] = _Held(self._make(lo, hi, self._reader), hi - lo)
            self._next += 1

    def _end_pass(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self.waited += self._reader.waited
        self._reader, self._next = None, 0

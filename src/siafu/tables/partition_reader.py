"""PartitionReader: partitions of tables in a given order, read ahead of their use by a thread of its own."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from siafu.kernels import Table
from siafu.tables.pages import Bytes, page_buffer
from siafu.tables.row_table import RowTable


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """One read of a partition.

    before: the place in the order where it is used next
    slot:   which buffer it goes to
    after:  the last place where what the buffer holds is used before that; -1: it holds nothing
    """

    partition: int
    before: int
    slot: int
    after: int


def plan_reads(order: Sequence[int], slots: int) -> list[PartitionRead]:
    """The fewest reads that serve an order with so many buffers, two at least, while one is used and another is filled.

    Of the partitions that may go, the one whose next use is the latest goes.
    """
    if slots < 2:
        raise ValueError("one partition is used while another is read: that takes two buffers")
    held: dict[int, int] = {}  # from a partition to its slot
    used: dict[int, int] = {}  # to the latest place where it was used
    found = []
    for place, partition in enumerate(order):
        if partition not in held:
            slot, after = len(held), -1
            if slot == slots:
                gone = max(
                    (each for each in held if used[each] < place - 1),
                    key=lambda each: _next(order, place, each),
                )
                slot, after = held.pop(gone), used[gone]
            held[partition] = slot
            found.append(PartitionRead(partition, place, slot, after))
        used[partition] = place
    return found


def _next(order: Sequence[int], place: int, partition: int) -> int:
    return next((k for k in range(place, len(order)) if order[k] == partition), len(order))


class PartitionReader:
    """A buffer of so many partitions in front of some tables that are cut alike.

    tables: read together, such as gradients and the targets' numbers
    bounds: of partitions, as ranges of rows
    order:  partitions as they will be used; one may come again
    slots:  partitions in memory at a time, see `plan_reads`

    One thread uses it: `with reader.next() as (partition, rows)`. waited: seconds for which it waited.
    """

    def __init__(
        self, tables: Sequence[RowTable], bounds: Sequence[tuple[int, int]], order: Sequence[int], slots: int
    ) -> None:
        self._tables, self._bounds, self._order = tables, bounds, list(order)
        self._reads = plan_reads(order, slots)
        longest = max((last - first for first, last in bounds), default=0)
        self._slots: list[list[Bytes]] = [
            [page_buffer(table.buffer_bytes(longest)) for table in tables]
            for _ in range(1 + max((read.slot for read in self._reads), default=-1))
        ]
        self._rows: dict[int, list[Table]] = {}
        self._used, self._read, self._ended = 0, 0, False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self.waited = 0.0
        self._thread = threading.Thread(target=self._work, name="siafu-read", daemon=True)
        self._thread.start()

    @contextmanager
    def next(self) -> Iterator[tuple[int, list[Table]]]:
        """The next partition in order, and its rows of each table, until the block ends."""
        place, began = self._used, time.perf_counter()
        with self._changed:
            if self._error is None and not self._is_there(place):
                with self._tables[0].waiting(all_threads=True):
                    self._changed.wait_for(lambda: self._error is not None or self._is_there(place))
            if self._error is not None and not self._is_there(place):
                raise self._error
            partition = self._order[place]
            rows = self._rows[partition]
        self.waited += time.perf_counter() - began
        try:
            yield partition, rows
        finally:
            with self._changed:
                self._used += 1
                self._changed.notify_all()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_there(self, place: int) -> bool:
        return self._read == len(self._reads) or self._reads[self._read].before > place

    def _work(self) -> None:
        try:
            for read in self._reads:
                if not self._may_go(read):
                    return
                first, last = self._bounds[read.partition]
                slot = self._slots[read.slot]
                rows = [
                    table.read(first, last, buffer) for table, buffer in zip(self._tables, slot, strict=True)
                ]
                with self._changed:
                    self._rows[read.partition] = rows
                    self._read += 1
                    self._changed.notify_all()
        except BaseException as error:  # raised where somebody waits for it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _may_go(self, read: PartitionRead) -> bool:
        """Wait until the buffer's content has been used; False: the reader is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._used > read.after)
            return not self._ended

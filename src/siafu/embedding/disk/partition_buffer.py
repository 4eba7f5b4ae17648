"""PartitionBuffer: rows of some partitions in memory, those of all in a scratch file.

Entity e is row e // p of partition e % p. The buffer has one place more than it may hold partitions: while some are trained, the one that
left last is written from its place, and then the next one is read into that.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.tables import ScratchDirectory, page_buffer
from siafu.tables.pages import PAGE

_FLOAT = 4

FirstRows = Callable[[NDArray[np.int64]], NDArray[np.float32]]


class PartitionLayout:
    """Where rows are, in the scratch file and in the buffer.

    kinds: arrays that travel together: vectors, then what the optimizer keeps
    step:  rows that fill whole pages
    rows:  of a partition's place: a few more than it has entities, so that places begin on pages
    """

    def __init__(self, num_entities: int, dim: int, partitions: int, kinds: int) -> None:
        self.num_entities, self.dim, self.partitions, self.kinds = num_entities, dim, partitions, kinds
        self.step = PAGE // math.gcd(PAGE, dim * _FLOAT)
        self.rows = -(-self.count(0) // self.step) * self.step
        self.bytes = self.rows * dim * _FLOAT

    def count(self, partition: int) -> int:
        """Entities of a partition."""
        return max(0, -(-(self.num_entities - partition) // self.partitions))

    def entities(self, partition: int) -> NDArray[np.int64]:
        """Its entities, by row."""
        return partition + self.partitions * np.arange(self.count(partition))

    def place(self, partition: int, kind: int) -> int:
        """Where its rows of one kind begin in the file."""
        return (partition * self.kinds + kind) * self.bytes

    @property
    def file_bytes(self) -> int:
        return self.partitions * self.kinds * self.bytes

    def buffer_bytes(self, buffer: int) -> int:
        """Bytes of a buffer for so many partitions, and the one that is on its way."""
        return (buffer + 1) * self.kinds * self.bytes


class PartitionBuffer:
    """Partitions in memory, which change places with those in the file.

    arrays: by kind, [(buffer + 1) * rows, dim]: the place of a partition is a range of rows
    slots:  the place of each resident partition
    swaps:  partitions read in place of others
    """

    def __init__(self, layout: PartitionLayout, buffer: int, scratch: ScratchDirectory) -> None:
        self.layout = layout
        self.scratch = scratch
        self._file = scratch.file(layout.file_bytes)
        self._memory = [page_buffer((buffer + 1) * layout.bytes) for _ in range(layout.kinds)]
        self.arrays: list[NDArray[np.float32]] = [
            memory[: (buffer + 1) * layout.bytes].view(np.float32).reshape(-1, layout.dim)
            for memory in self._memory
        ]
        self.slots: dict[int, int] = {}
        self.swaps = 0
        self._spare = buffer
        self._free = list(range(buffer))
        self._coming: tuple[int | None, Future[None]] | None = None
        self._there: int | None = None
        self._disk = ThreadPoolExecutor(1, "siafu-partitions")

    def fill(self, first_rows: FirstRows) -> None:
        """Write every partition's first vectors, and zeros for what the optimizer keeps."""
        for partition in range(self.layout.partitions):
            self.write(partition, 0, first_rows(self.layout.entities(partition)))
            for kind in range(1, self.layout.kinds):
                self.write(partition, kind, np.zeros((0, self.layout.dim), np.float32))

    def write(self, partition: int, kind: int, rows: NDArray[Any]) -> None:
        """Write rows of a partition that is not resident; what they leave of its place is zeros."""
        memory = page_buffer(self.layout.bytes)[: self.layout.bytes]
        memory.view(np.float32).reshape(-1, self.layout.dim)[: len(rows)] = rows
        self._file.write(memory, self.layout.place(partition, kind))

    def read(self, partition: int, kind: int) -> NDArray[np.float32]:
        """Rows of a partition: from the file, unless it is resident."""
        count = self.layout.count(partition)
        if partition in self.slots:
            first = self.slots[partition] * self.layout.rows
            return self.arrays[kind][first : first + count].copy()
        memory = page_buffer(self.layout.bytes)[: self.layout.bytes]
        self._file.read_into(memory, self.layout.place(partition, kind))
        return memory.view(np.float32).reshape(-1, self.layout.dim)[:count]

    def read_range(self, partition: int, kind: int, first: int, last: int) -> NDArray[np.float32]:
        """Some rows of a partition that is not resident; first and last are multiples of `layout.step`."""
        width = self.layout.dim * _FLOAT
        memory = page_buffer((last - first) * width)[: (last - first) * width]
        self._file.read_into(memory, self.layout.place(partition, kind) + first * width)
        return memory.view(np.float32).reshape(-1, self.layout.dim)

    def load(self, partitions: tuple[int, ...], following: int | None) -> None:
        """Read the first partitions of an epoch; following: the one that comes next."""
        for partition in partitions:
            slot = self._free.pop()
            self._read_slot(partition, slot)
            self.slots[partition] = slot
        self._order(None, following)

    def swap(self, leaving: int, coming: int, following: int | None) -> None:
        """Let one partition take another's place; following: the one that comes after it."""
        if self._moved() != coming:
            self._read_slot(coming, self._spare)
        slot = self.slots.pop(leaving)
        self.slots[coming] = self._spare
        self._spare = slot
        self.swaps += 1
        self._order(leaving, following)

    def leave(self, partition: int) -> None:
        """Write a partition whose place nobody takes."""
        expected = self._moved()
        slot = self.slots.pop(partition)
        self._write_slot(partition, slot)
        self._free.append(slot)
        # What was read ahead is older than what has just been written.
        self._there = None if expected == partition else expected

    def enter(self, partition: int) -> None:
        """Read a partition into a free place."""
        self._there = self._moved()
        slot = self._free.pop()
        self._read_slot(partition, slot)
        self.slots[partition] = slot
        self.swaps += 1

    def flush(self) -> None:
        """Write all that is resident; the buffer is empty then."""
        self._moved()
        for partition, slot in self.slots.items():
            self._write_slot(partition, slot)
            self._free.append(slot)
        self.slots = {}

    def close(self) -> None:
        """Give memory and disk back."""
        self._disk.shutdown()
        self._file.close()

    def _order(self, leaving: int | None, following: int | None) -> None:
        """Have the spare place's old rows written, and the next partition read into it, while others are trained."""
        spare = self._spare

        def move() -> None:
            if leaving is not None:
                self._write_slot(leaving, spare)
            if following is not None:
                self._read_slot(following, spare)

        self._coming = (following, self._disk.submit(move))

    def _moved(self) -> int | None:
        """Wait for the disk; the partition that is in the spare place then."""
        if self._coming is not None:
            expected, moved = self._coming
            self._coming = None
            moved.result()
            return expected
        there, self._there = self._there, None
        return there

    def _pages(self, slot: int) -> Iterator[NDArray[np.uint8]]:
        for memory in self._memory:
            yield memory[slot * self.layout.bytes : (slot + 1) * self.layout.bytes]

    def _read_slot(self, partition: int, slot: int) -> None:
        for kind, pages in enumerate(self._pages(slot)):
            self._file.read_into(pages, self.layout.place(partition, kind))

    def _write_slot(self, partition: int, slot: int) -> None:
        for kind, pages in enumerate(self._pages(slot)):
            self._file.write(pages, self.layout.place(partition, kind))

"""PartitionBuffer: rows of some partitions in memory, those of all in a scratch file.

Entity e is row e // p of partition e % p. The buffer has some places more than it may hold partitions: while some are trained, those that
left are written from their places, and then the next ones are read into these, by one thread, in this order.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.steps.float_bits import as_kind, table_type, widened
from siafu.embedding.steps.row_updates import moment_count
from siafu.tables import ScratchDirectory, page_buffer
from siafu.tables.pages import PAGE

_FLOAT32 = np.dtype(np.float32)

SPAN_BYTES = 32 << 20
"""Bytes of float32 of the rows of all partitions that are put in order at once, as far as pages allow."""

_LARGE_SPAN = 8 * SPAN_BYTES

RowsOf = Callable[[int, int], NDArray[np.float32]]
"""Rows of the entities from a first one to a last one, which is not among them."""


class RowSpan(NamedTuple):
    """Rows from `first` to `last` of every partition. Together they are the entities from `begin` to `end`, one of each partition in turn."""

    first: int
    last: int
    begin: int
    end: int


class PartitionLayout:
    """Where rows are, in the scratch file and in the buffer.

    kinds: arrays that travel together: vectors, then what the optimizer keeps
    step:  rows that fill whole pages
    rows:  of a partition's place: a few more than it has entities, so that places begin on pages
    dtype: float32, or uint16 for bfloat16
    width: bytes of a row
    """

    def __init__(
        self, num_entities: int, dim: int, partitions: int, kinds: int, dtype: np.dtype[Any] = _FLOAT32
    ) -> None:
        self.num_entities, self.dim, self.partitions, self.kinds = num_entities, dim, partitions, kinds
        self.dtype, self.width = dtype, dim * dtype.itemsize
        self.step = PAGE // math.gcd(PAGE, self.width)
        self.rows = -(-self.count(0) // self.step) * self.step
        self.bytes = self.rows * self.width

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

    def rows_in(self, size: int) -> int:
        """Rows of float32 that fill so many bytes: whole pages of a partition, one at least."""
        return self.step * max(1, size // (self.step * self.dim * _FLOAT32.itemsize))

    def spans(self, size: int = SPAN_BYTES) -> Iterator[RowSpan]:
        """All entities in order, about so many bytes of float32 at a time; each span begins on pages of every partition."""
        some = self.rows_in(size // self.partitions)
        for first in range(0, self.rows, some):
            last = min(first + some, self.rows)
            begin, end = (min(self.num_entities, row * self.partitions) for row in (first, last))
            yield RowSpan(first, last, begin, end)

    def buffer_bytes(self, buffer: int, ahead: int) -> int:
        """Bytes of a buffer for so many partitions, and for those that are on their way."""
        return (buffer + ahead) * self.kinds * self.bytes


def layout_of(num_entities: int, options: EmbedOptions) -> PartitionLayout:
    """How the entities are divided, and in which numbers."""
    assert options.partitions is not None
    kinds = 1 + moment_count(options.optimizer)
    return PartitionLayout(
        num_entities, options.dim, options.partitions, kinds, table_type(options.precision)
    )


class PartitionBuffer:
    """Partitions in memory, which change places with those in the file.

    arrays: by kind, [(buffer + ahead) * rows, dim]: the place of a partition is a range of rows
    slots:  the place of each resident partition
    swaps:  partitions read after the first ones of an epoch
    moving_seconds: time that reading and writing took, by any thread
    waited_seconds: time that the trainer waited for it
    """

    def __init__(
        self, layout: PartitionLayout, buffer: int, scratch: ScratchDirectory, *, ahead: int = 1
    ) -> None:
        self.layout = layout
        self.scratch = scratch
        self._file = scratch.file(layout.file_bytes)
        places = buffer + ahead
        self._memory = [page_buffer(places * layout.bytes) for _ in range(layout.kinds)]
        self.arrays: list[NDArray[Any]] = [
            memory[: places * layout.bytes].view(layout.dtype).reshape(-1, layout.dim)
            for memory in self._memory
        ]
        self.slots: dict[int, int] = {}
        self.swaps = 0
        self.moving_seconds = self.waited_seconds = 0.0
        self._free = list(range(places))
        self._expected: deque[int] = deque()
        self._coming: dict[int, tuple[int, Future[None]]] = {}
        self._leaving: list[Future[None]] = []
        self._disk = ThreadPoolExecutor(1, "siafu-partitions")

    def fill(self, rows_of: RowsOf, kind: int = 0) -> None:
        """Write rows of one kind of every partition, in the order of entities. Without that they are zeros, as the file is."""
        # The buffer is empty yet. Its memory allows larger spans, of which each partition gets more at a time.
        room = sum(len(memory) for memory in self._memory) // 4
        for span in self.layout.spans(max(SPAN_BYTES, min(_LARGE_SPAN, room))):
            rows = rows_of(span.begin, span.end)
            for partition in range(self.layout.partitions):
                self._write_range(
                    partition, kind, span.first, span.last, rows[partition :: self.layout.partitions]
                )

    def write(self, partition: int, kind: int, rows: NDArray[Any]) -> None:
        """Write rows of a partition that is not resident; what they leave of its place is zeros."""
        self._write_range(partition, kind, 0, self.layout.rows, rows)

    def _write_range(self, partition: int, kind: int, first: int, last: int, rows: NDArray[Any]) -> None:
        size = (last - first) * self.layout.width
        memory = page_buffer(size)[:size]
        table = memory.view(self.layout.dtype).reshape(-1, self.layout.dim)
        table[: len(rows)] = as_kind(rows, self.layout.dtype)
        self._file.write(memory, self.layout.place(partition, kind) + first * self.layout.width)

    def read(self, partition: int, kind: int) -> NDArray[np.float32]:
        """Rows of a partition: from the file, unless it is resident."""
        count = self.layout.count(partition)
        if partition in self.slots:
            first = self.slots[partition] * self.layout.rows
            rows = widened(self.arrays[kind][first : first + count])
            return rows if rows.base is None else rows.copy()
        memory = page_buffer(self.layout.bytes)[: self.layout.bytes]
        self._file.read_into(memory, self.layout.place(partition, kind))
        return widened(memory.view(self.layout.dtype).reshape(-1, self.layout.dim)[:count])

    def read_range(self, partition: int, kind: int, first: int, last: int) -> NDArray[np.float32]:
        """Some rows of a partition that is not resident; first and last are multiples of `layout.step`."""
        width = self.layout.width
        memory = page_buffer((last - first) * width)[: (last - first) * width]
        self._file.read_into(memory, self.layout.place(partition, kind) + first * width)
        return widened(memory.view(self.layout.dtype).reshape(-1, self.layout.dim))

    def load(self, partitions: tuple[int, ...], coming: Iterable[int] = ()) -> None:
        """Read the first partitions of an epoch; coming: those that are admitted later, in this order."""
        with self._waiting():
            self._expected = deque(coming)
            for partition in partitions:
                self.slots[partition] = self._arrived(partition)
        self._read_ahead()

    def admit(self, partition: int) -> None:
        """Make a partition resident: it is there, or on its way, if `load` was told of it."""
        with self._waiting():
            if self._expected and self._expected[0] == partition and partition not in self._coming:
                self._expected.popleft()
            self.slots[partition] = self._arrived(partition)
        self.swaps += 1

    def release(self, partition: int) -> None:
        """Have a resident partition written, and the next one read into its place, while others are trained."""
        with self._waiting():
            self._settle(wait=False)
            slot = self.slots.pop(partition)
            self._leaving.append(self._disk.submit(self._write_slot, partition, slot))
            self._free.append(slot)
        self._read_ahead()

    def flush(self) -> None:
        """Write all that is resident; the buffer is empty then."""
        with self._waiting():
            self._expected.clear()
            for slot, read in self._coming.values():
                read.result()
                self._free.append(slot)
            self._coming = {}
            for partition, slot in self.slots.items():
                self._leaving.append(self._disk.submit(self._write_slot, partition, slot))
                self._free.append(slot)
            self.slots = {}
            self._settle(wait=True)

    def close(self) -> None:
        """Give memory and disk back."""
        self._disk.shutdown()
        self._file.close()

    def _arrived(self, partition: int) -> int:
        """The place of a partition, once it is there."""
        if partition not in self._coming:
            # After whatever is being written: it may be this one, or lie in the place that is taken.
            slot = self._free.pop(0)
            self._coming[partition] = slot, self._disk.submit(self._read_slot, partition, slot)
        slot, read = self._coming.pop(partition)
        read.result()
        return slot

    def _read_ahead(self) -> None:
        """Have those that come next read into free places. One that is still resident is read when it has left: it changes until then."""
        while self._free and self._expected and self._expected[0] not in self.slots:
            partition, slot = self._expected.popleft(), self._free.pop(0)
            self._coming[partition] = slot, self._disk.submit(self._read_slot, partition, slot)

    def _settle(self, *, wait: bool) -> None:
        """Raise the error of a write that failed; wait: for all of them."""
        for write in self._leaving:
            if wait or write.done():
                write.result()
        self._leaving = [write for write in self._leaving if not write.done()]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.waited_seconds += time.perf_counter() - began

    def _pages(self, slot: int) -> Iterator[NDArray[np.uint8]]:
        for memory in self._memory:
            yield memory[slot * self.layout.bytes : (slot + 1) * self.layout.bytes]

    def _read_slot(self, partition: int, slot: int) -> None:
        began = time.perf_counter()
        for kind, pages in enumerate(self._pages(slot)):
            self._file.read_into(pages, self.layout.place(partition, kind))
        self.moving_seconds += time.perf_counter() - began

    def _write_slot(self, partition: int, slot: int) -> None:
        began = time.perf_counter()
        for kind, pages in enumerate(self._pages(slot)):
            self._file.write(pages, self.layout.place(partition, kind))
        self.moving_seconds += time.perf_counter() - began

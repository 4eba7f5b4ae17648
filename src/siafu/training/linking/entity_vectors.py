"""Vectors of entities that are learnt with a model: all in memory, or in partitions on disk, some of them in memory at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from siafu.base.storage.mapped import mapped_array
from siafu.embedding.disk.bucket_orders import ORDERS, Buckets, BufferState, read_ahead
from siafu.embedding.disk.buffered_states import resident_states
from siafu.embedding.disk.partition_buffer import PartitionBuffer, PartitionLayout
from siafu.embedding.disk.partitioned_trainer import rows_in_order
from siafu.embedding.steps.negatives import generator
from siafu.embedding.steps.row_updates import RowOptimizer, TouchedRows, gather_rows
from siafu.graph.triples.triples import TripleRows
from siafu.tables import ScratchDirectory
from siafu.training.linking.triple_training import TripleTraining

FirstRows = Callable[[int], NDArray[np.float32]]
"""Draws the first vectors of so many entities, those that come next."""

_BUCKETS = 23  # key of the random numbers, among those that other rooms draw
KINDS = 2
"""Kinds of rows that a partition has: vectors, and Adagrad's sums of squares."""


@dataclass(frozen=True)
class Residents:
    """Entities whose vectors are in memory. They have numbers here, in the order of entities.

    partitions: ascending
    first_rows: where the rows of each begin in the table
    """

    layout: PartitionLayout
    partitions: NDArray[np.int64]
    first_rows: NDArray[np.int64]

    @cached_property
    def count(self) -> int:
        """How many there are."""
        return sum(self.layout.count(int(each)) for each in self.partitions)

    @property
    def are_all(self) -> bool:
        return self.count == self.layout.num_entities

    def numbers(self, entities: NDArray[Any]) -> NDArray[np.int64]:
        """Their numbers here."""
        ranks = np.zeros(self.layout.partitions, np.int64)
        ranks[self.partitions] = np.arange(len(self.partitions))
        found: NDArray[np.int64] = (
            entities // self.layout.partitions * len(self.partitions)
            + ranks[entities % self.layout.partitions]
        )
        return found

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Their rows of the table."""
        return self.first_rows[numbers % len(self.partitions)] + numbers // len(self.partitions)

    def partition_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.partitions[numbers % len(self.partitions)]


@dataclass(frozen=True)
class VectorState:
    """A part of an epoch: what is in memory, and what is trained while it is.

    trained: [n] places of the triples that are trained, ascending
    near:    [m] places of all triples between entities in memory, ascending: neighbours are drawn from these
    buckets: [partitions, partitions] whether triples with a head and a tail of these are trained
    """

    residents: Residents
    buckets: NDArray[np.bool_]
    trained: NDArray[np.int64]
    near: NDArray[np.int64]


class EntityVectors(Protocol):
    """Learnt vectors of all entities."""

    def states(self, epoch: int) -> Iterator[VectorState]:
        """The parts of an epoch."""

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some rows of the table in memory."""

    def update(self, rows: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        """Move some rows of the table in memory, each named once, against their gradients."""

    def whole(self) -> NDArray[np.float32]:
        """[N, dim] all vectors between two epochs, in the order of entities: they change with the table, or lie in a file of their own."""

    def kept(self) -> NDArray[np.float32]:
        """The same, as they are now: nobody changes them."""

    def close(self) -> None:
        """Give memory and disk back."""


class _Table:
    """A table in memory, and its optimizer."""

    def __init__(self, table: NDArray[np.float32], squares: NDArray[np.float32], lr: float) -> None:
        self.optimizer = RowOptimizer("adagrad", table, [squares], lr)
        self._touched = TouchedRows(len(table))

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        table = self.optimizer.table
        found = np.empty((len(rows), table.shape[1]), table.dtype)
        gather_rows(table, rows, found)
        return found

    def update(self, rows: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        self._touched.list(rows)
        self.optimizer.update(self._touched, gradients, self.optimizer.begin_step())


class VectorsInMemory(_Table):
    """All vectors in one table: an epoch has one part."""

    def __init__(
        self, first: FirstRows, triples: TripleRows, num_entities: int, asked: TripleTraining
    ) -> None:
        self.table = first(num_entities)
        super().__init__(self.table, np.zeros_like(self.table), asked.lr)
        layout = PartitionLayout(num_entities, asked.dim, 1, KINDS)
        everywhere, every = np.zeros(1, np.int64), np.arange(len(triples))
        self._state = VectorState(
            Residents(layout, everywhere, everywhere), np.ones((1, 1), np.bool_), every, every
        )

    def states(self, epoch: int) -> Iterator[VectorState]:
        yield self._state

    def whole(self) -> NDArray[np.float32]:
        return self.table

    def kept(self) -> NDArray[np.float32]:
        return self.table.copy()

    def close(self) -> None:
        pass


class VectorsOnDisk(_Table):
    """Vectors in partitions on disk, a few of them in a buffer."""

    def __init__(
        self, first: FirstRows, triples: TripleRows, num_entities: int, asked: TripleTraining
    ) -> None:
        assert asked.partitions is not None
        assert asked.buffer is not None
        self._asked, self._scratch = asked, Path(asked.scratch_directory)
        self._layout = PartitionLayout(num_entities, asked.dim, asked.partitions, KINDS)
        self._places = _PlacesByBucket(triples, asked.partitions)
        self.buffer = PartitionBuffer(
            self._layout, asked.buffer, ScratchDirectory(self._scratch), ahead=places_ahead(asked)
        )
        self.buffer.fill(lambda begin, end: first(end - begin))
        vectors, squares = self.buffer.arrays
        super().__init__(vectors, squares, asked.lr)
        self._whole: NDArray[np.float32] | None = None

    def states(self, epoch: int) -> Iterator[VectorState]:
        self._whole = None
        for state in resident_states(self.buffer, _states(self._asked, epoch)):
            slots = self.buffer.slots
            partitions = np.array(sorted(slots), np.int64)
            first_rows = np.array([slots[int(each)] * self._layout.rows for each in partitions], np.int64)
            residents = Residents(self._layout, partitions, first_rows)
            near = self._places.of([(i, j) for i in slots for j in slots])
            buckets = np.zeros((self._layout.partitions,) * 2, np.bool_)
            buckets[tuple(zip(*state.buckets, strict=True))] = True
            yield VectorState(residents, buckets, self._places.of(state.buckets), near)
        self.buffer.flush()

    def whole(self) -> NDArray[np.float32]:
        if self._whole is None:
            layout = self._layout
            self._whole = mapped_rows(self._scratch, layout.num_entities, layout.dim)
            end = 0
            for rows in rows_in_order(self.buffer):
                self._whole[end : end + len(rows)] = rows
                end += len(rows)
        return self._whole

    def kept(self) -> NDArray[np.float32]:
        return self.whole()

    def close(self) -> None:
        self.buffer.close()
        self._whole = None


def mapped_rows(directory: Path, count: int, dim: int) -> NDArray[np.float32]:
    """Zeros in a file without a name, of which the system drops pages where memory is short."""
    return mapped_array(directory, count * dim, np.float32).reshape(count, dim)


def places_ahead(asked: TripleTraining) -> int:
    """Places of the buffer for partitions that are on their way."""
    assert asked.partitions is not None
    assert asked.buffer is not None
    return 0 if asked.buffer >= asked.partitions else read_ahead(asked.order, asked.buffer)


def _states(asked: TripleTraining, epoch: int) -> list[BufferState]:
    assert asked.partitions is not None
    assert asked.buffer is not None
    if asked.buffer >= asked.partitions:
        every = tuple(range(asked.partitions))
        return [BufferState(every, [(i, j) for i in every for j in every])]
    return ORDERS[asked.order](asked.partitions, asked.buffer, generator(asked.seed, _BUCKETS, epoch))


class _PlacesByBucket:
    """Places of triples, by the partitions of their heads and tails."""

    def __init__(self, triples: TripleRows, partitions: int) -> None:
        self._partitions = partitions
        numbers = triples[:, 0] % partitions * partitions + triples[:, 2] % partitions
        self._order = np.argsort(numbers, kind="stable")
        self._starts = np.append(0, np.cumsum(np.bincount(numbers, minlength=partitions * partitions)))

    def of(self, buckets: Buckets) -> NDArray[np.int64]:
        """Those of some buckets, ascending."""
        numbers = [i * self._partitions + j for i, j in buckets]
        parts = [self._order[self._starts[each] : self._starts[each + 1]] for each in numbers]
        found: NDArray[np.int64] = np.concatenate([*parts, np.empty(0, np.int64)])
        found.sort()
        return found

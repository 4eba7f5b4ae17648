"""PartitionedTrainer: what trainers have in common whose entities' vectors lie in partitions, and not in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import Pause, never
from siafu.embedding.embeddings import Embeddings, VectorBlock
from siafu.embedding.steps.epoch import EpochLosses
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples
from siafu.report.files.large_tensors import StreamedTable

READ_BYTES = 16 << 20
"""Bytes of a partition's vectors that are read at once."""


class Partitions(Protocol):
    """Where partitions lie."""

    @property
    def layout(self) -> PartitionLayout: ...

    def read(self, partition: int, kind: int) -> NDArray[np.float32]:
        """Rows of one kind of a partition."""

    def read_range(self, partition: int, kind: int, first: int, last: int) -> NDArray[np.float32]:
        """Some of them; first and last are multiples of `layout.step`."""


def rows_in_order(partitions: Partitions, kind: int = 0) -> Iterator[NDArray[np.float32]]:
    """The entities' rows of one kind, in the order of entities, a few at a time."""
    layout = partitions.layout
    for span in layout.spans():
        rows = np.empty((span.last - span.first, layout.partitions, layout.dim), np.float32)
        for partition in range(layout.partitions):
            rows[:, partition] = partitions.read_range(partition, kind, span.first, span.last)
        yield rows.reshape(-1, layout.dim)[: span.end - span.begin]


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """Traffic of partitions, and how much of its time was waited for."""

    swaps: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    moving_seconds: float = 0.0
    waited_seconds: float = 0.0


@dataclass(frozen=True)
class PartitionedEmbeddings(Embeddings):
    """Vectors of which the entities' lie in partitions. `entities` is empty."""

    partitions: Partitions

    @property
    def num_entities(self) -> int:
        return self.partitions.layout.num_entities

    @property
    def dim(self) -> int:
        return self.partitions.layout.dim

    def rows(self, entities: NDArray[Any]) -> NDArray[Any]:
        step = self.partitions.layout.partitions
        found = np.empty((len(entities), self.dim), np.float32)
        partition_of, row_of = entities % step, entities // step
        for partition in range(step):
            own = np.flatnonzero(partition_of == partition)
            for first, last in self._ranges(partition):
                here = own[(row_of[own] >= first) & (row_of[own] < last)]
                if len(here):
                    found[here] = self.partitions.read_range(partition, 0, first, last)[row_of[here] - first]
        return found

    def is_one_block(self, most: int) -> bool:
        return False

    def blocks(self, most: int) -> Iterator[VectorBlock]:
        layout = self.partitions.layout
        for partition in range(layout.partitions):
            for start, last in self._ranges(partition):
                rows = self.partitions.read_range(partition, 0, start, last)
                rows = rows[: layout.count(partition) - start]
                for first in range(0, len(rows), most):
                    begin = partition + (start + first) * layout.partitions
                    yield VectorBlock(begin, layout.partitions, rows[first : first + most])

    def _ranges(self, partition: int) -> Iterator[tuple[int, int]]:
        """First and last rows of a partition that are read together."""
        layout = self.partitions.layout
        some = layout.rows_in(READ_BYTES)
        for first in range(0, layout.count(partition), some):
            yield first, min(first + some, layout.rows)


class PartitionedTrainer(ABC):
    """Learns embeddings of triples whose entities lie in partitions.

    epoch:     how many are done
    position:  states done of the next one
    losses:    of these states
    relations: their vectors, and what their optimizer keeps
    """

    partitions: Partitions
    relations: RowOptimizer

    def __init__(self, triples: Triples, options: EmbedOptions) -> None:
        self.triples, self.options = triples, options
        self.epoch = self.position = 0
        self.losses = EpochLosses()
        self._score = SCORES[options.score]

    @abstractmethod
    def run_epoch(self, pause: Pause = never) -> EpochLosses | None:
        """Go over all training triples once. None: it rests within the epoch; the next call goes on from there."""

    @abstractmethod
    def counts(self) -> DiskCounts:
        """Traffic until now."""

    @abstractmethod
    def close(self) -> None:
        """Give memory and disk back."""

    @property
    @abstractmethod
    def steps(self) -> dict[str, int]:
        """Updates of each table."""

    @abstractmethod
    def set_steps(self, steps: dict[str, int]) -> None: ...

    @property
    def embeddings(self) -> Embeddings:
        """The vectors as they are now."""
        nothing = np.empty((0, self.options.dim), np.float32)
        relations = self.relations.table
        return PartitionedEmbeddings(
            self._score, nothing, relations, self.triples.num_relations, self.partitions
        )

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """All that the next epoch depends on: tables, and numbers."""
        names = ["entities", *(f"entities.moment{k}" for k in range(self.partitions.layout.kinds - 1))]
        arrays: dict[str, Any] = {name: self.streamed(kind) for kind, name in enumerate(names)}
        arrays["relations"] = self.relations.table
        arrays |= {f"relations.moment{k}": moment for k, moment in enumerate(self.relations.moments)}
        return arrays, self.steps

    def streamed(self, kind: int = 0) -> StreamedTable:
        """The entities' rows of one kind, in the order of entities, a few at a time."""
        layout = self.partitions.layout
        return StreamedTable(
            (layout.num_entities, layout.dim),
            np.dtype(np.float32),
            lambda: rows_in_order(self.partitions, kind),
        )

    def restore(self, arrays: dict[str, NDArray[Any]], steps: dict[str, int]) -> None:
        """Take the tables that `state` gave. ValueError: they are of other embeddings."""
        for name, found in self.state()[0].items():
            if name not in arrays or tuple(arrays[name].shape) != tuple(found.shape):
                raise ValueError(f"it has no {name} of shape {list(found.shape)}")
        kinds = range(1, self.partitions.layout.kinds)
        self.write_entities([arrays["entities"], *(arrays[f"entities.moment{kind - 1}"] for kind in kinds)])
        self.relations.table[:] = arrays["relations"]
        for k, moment in enumerate(self.relations.moments):
            moment[:] = arrays[f"relations.moment{k}"]
        self.set_steps(steps)

    @abstractmethod
    def write_entities(self, kinds: list[NDArray[Any]]) -> None:
        """Write the entities' rows of all kinds to their partitions; each is a table in the order of entities, and may be a mapped file."""

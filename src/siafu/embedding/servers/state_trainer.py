"""StateTrainer: a server's memory: partitions of the state that it trains, and the training itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.embedding.disk.state_batches import StateBatches
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import refuse_divergence
from siafu.embedding.embeddings import first_relations
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.servers.relation_changes import RelationCopy
from siafu.embedding.steps.epoch import Batches, EpochLosses, EpochRunner
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples
from siafu.tables import page_buffer

_EXCHANGE = 4  # batches from one exchange of relations to the next


@dataclass(slots=True)
class _Place:
    """A partition in memory. missing: bytes that have not come yet"""

    slot: int
    version: int
    missing: int = 0


@dataclass
class StateTrainer:
    """Partitions in memory, and the training of their buckets.

    relations: this server's copy
    """

    triples: Triples
    options: EmbedOptions
    layout: PartitionLayout
    scratch: Path
    tables: TrainedTables = field(init=False)
    relations: RelationCopy = field(init=False)
    _memory: list[NDArray[np.uint8]] = field(init=False)
    _places: dict[int, _Place] = field(init=False, default_factory=dict)
    _batches: StateBatches = field(init=False)
    _runner: EpochRunner = field(init=False)

    def __post_init__(self) -> None:
        options, layout = self.options, self.layout
        assert options.buffer is not None
        self._memory = [page_buffer(options.buffer * layout.bytes) for _ in range(layout.kinds)]
        vectors, *moments = (
            memory[: options.buffer * layout.bytes].view(layout.dtype).reshape(-1, layout.dim)
            for memory in self._memory
        )
        score = SCORES[options.score]
        relations = first_relations(
            score, self.triples.num_relations, options.dim, options.seed, reciprocal=options.reciprocal
        )
        self.tables = TrainedTables.of(
            RowOptimizer(options.optimizer, vectors, moments, options.lr, options.unit_entities),
            RowOptimizer.of(options.optimizer, relations, options.lr),
            self.triples.num_relations,
        )
        if options.filter_negatives:
            self.tables.known = KnownTriples.of([self.triples.train], self.triples.num_relations)
        self.relations = RelationCopy(self.tables.relations, self.tables.relation_lock)
        self._batches = StateBatches(self.triples.train, options, layout, self.tables, self.scratch)
        self._runner = EpochRunner(options, self.tables)

    def make_room(self, partitions: tuple[int, ...]) -> None:
        """Forget partitions that these do not name."""
        self._places = {each: place for each, place in self._places.items() if each in partitions}

    def has(self, partition: int, version: int) -> bool:
        """Whether it is in memory as it was trained last."""
        place = self._places.get(partition)
        return place is not None and place.version == version and place.missing == 0

    def expect(self, partition: int, version: int) -> None:
        """Give a partition a place."""
        old = self._places.pop(partition, None)
        taken = {place.slot for place in self._places.values()}
        assert self.options.buffer is not None
        free = next(slot for slot in range(self.options.buffer) if slot not in taken)
        slot = free if old is None else old.slot
        self._places[partition] = _Place(slot, version, self.layout.kinds * self.layout.bytes)

    def fill(self, partition: int, first: int, data: NDArray[np.uint8]) -> bool:
        """Take a piece of a partition; whether all have come."""
        self.bytes_of(partition, first, first + len(data))[:] = data
        place = self._places[partition]
        place.missing -= len(data)
        return place.missing == 0

    def bytes_of(self, partition: int, first: int, last: int) -> NDArray[np.uint8]:
        """A piece of a partition, in its place."""
        kind, at = divmod(first, self.layout.bytes)
        begin = self._places[partition].slot * self.layout.bytes + at
        return self._memory[kind][begin : begin + last - first]

    def trained(self, lease: int) -> None:
        """All partitions in memory are of this version now."""
        for place in self._places.values():
            place.version = lease

    def train(
        self, buckets: list[tuple[int, int]], epoch: int, number: int, exchange: Callable[[], None]
    ) -> EpochLosses:
        """Train these buckets; exchange: called every few batches."""
        self.tables.set_lr(self.options.lr_in(epoch))
        losses = EpochLosses()
        slots = {partition: place.slot for partition, place in self._places.items()}
        batches = self._batches.of(buckets, slots, epoch, number)
        self._runner.run(_exchanging(batches, exchange), losses)
        refuse_divergence(losses, epoch, self.options)
        return losses


def _exchanging(batches: Batches, exchange: Callable[[], None]) -> Batches:
    for number, batch in enumerate(batches):
        if number and number % _EXCHANGE == 0:
            exchange()
        yield batch

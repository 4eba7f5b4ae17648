"""DiskTrainer: epochs over triples with the entities' vectors in partitions on disk."""

from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from siafu.embedding.disk.bucket_orders import ORDERS, read_ahead
from siafu.embedding.disk.buffered_states import resident_states
from siafu.embedding.disk.partition_buffer import PartitionBuffer, layout_of
from siafu.embedding.disk.partitioned_trainer import DiskCounts, PartitionedTrainer
from siafu.embedding.disk.state_batches import StateBatches
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import Pause, never, refuse_divergence
from siafu.embedding.embeddings import first_entities, first_relations
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.steps.epoch import EpochLosses, EpochRunner
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.negatives import generator
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.graph.triples import Triples
from siafu.tables import ScratchDirectory

_BUCKETS = 5  # key of the random numbers


class DiskTrainer(PartitionedTrainer):
    """Learns embeddings of triples, with a few partitions of the entities' vectors in memory at a time.

    Negatives are drawn from the partitions in memory.
    """

    def __init__(self, triples: Triples, options: EmbedOptions, scratch: Path) -> None:
        super().__init__(triples, options)
        assert options.partitions is not None
        assert options.buffer is not None
        layout = layout_of(triples.num_entities, options)
        ahead = read_ahead(options.order, options.buffer)
        self.buffer = PartitionBuffer(layout, options.buffer, ScratchDirectory(scratch), ahead=ahead)
        self.partitions = self.buffer
        self.buffer.fill(
            lambda begin, end: first_entities(self._score, begin, end, options.dim, options.seed)
        )
        vectors, *moments = self.buffer.arrays
        relations = first_relations(
            self._score, triples.num_relations, options.dim, options.seed, reciprocal=options.reciprocal
        )
        self.relations = RowOptimizer.of(options.optimizer, relations, options.lr)
        self.tables = TrainedTables.of(
            RowOptimizer(options.optimizer, vectors, list(moments), options.lr, options.unit_entities),
            self.relations,
            triples.num_relations,
        )
        if options.filter_negatives:
            self.tables.known = KnownTriples.of([triples.train], triples.num_relations)
        self._batches = StateBatches(triples.train, options, layout, self.tables, scratch)
        self._runner = EpochRunner(options, self.tables)

    @property
    def steps(self) -> dict[str, int]:
        return {"entities": self.tables.entities.steps, "relations": self.relations.steps}

    def set_steps(self, steps: dict[str, int]) -> None:
        self.tables.entities.steps, self.relations.steps = steps["entities"], steps["relations"]

    def run_epoch(self, pause: Pause = never) -> EpochLosses | None:
        """Go over all training triples once, bucket by bucket."""
        options = self.options
        assert options.partitions is not None
        assert options.buffer is not None
        self.tables.set_lr(options.lr_in(self.epoch))
        random = generator(options.seed, _BUCKETS, self.epoch)
        states = ORDERS[options.order](options.partitions, options.buffer, random)
        for state in resident_states(self.buffer, states[self.position :]):
            batches = self._batches.of(state.buckets, self.buffer.slots, self.epoch, self.position)
            self._runner.run(batches, self.losses)
            refuse_divergence(self.losses, self.epoch, options)
            self.position += 1
            if self.position < len(states) and pause():
                self.buffer.flush()
                return None
        self.buffer.flush()
        losses, self.losses = self.losses, EpochLosses()
        self.epoch, self.position = self.epoch + 1, 0
        return losses

    def write_entities(self, kinds: list[NDArray[Any]]) -> None:
        for kind, table in enumerate(kinds):
            self.buffer.fill(partial(_rows_between, table), kind)

    def counts(self) -> DiskCounts:
        buffer, traffic = self.buffer, self.buffer.scratch.traffic
        return DiskCounts(
            buffer.swaps,
            traffic.bytes_read,
            traffic.bytes_written,
            buffer.moving_seconds,
            buffer.waited_seconds,
        )

    def close(self) -> None:
        self.buffer.close()


def _rows_between(table: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
    return table[begin:end]

"""DiskTrainer: epochs over triples with the entities' vectors in partitions on disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.disk.bucket_orders import ORDERS, BufferState, read_ahead
from siafu.embedding.disk.partition_buffer import PartitionBuffer, PartitionLayout
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import NEGATIVES, Pause, never, refuse_divergence
from siafu.embedding.embeddings import Embeddings, VectorBlock, first_entities, first_relations
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.steps.epoch import Batches, EpochLosses, EpochRunner
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.negatives import NegativeSampler, generator
from siafu.embedding.steps.row_updates import RowOptimizer, moment_count
from siafu.embedding.steps.scores import SCORES
from siafu.graph.spill import Spill
from siafu.graph.triples import Triples
from siafu.graph.triples.triples import TripleRows
from siafu.report.files.large_tensors import StreamedTable
from siafu.tables import ScratchDirectory

_BUCKETS, _SHUFFLE = 5, 6  # keys of the random numbers
_BLOCK = 1 << 20
_SPILL = 64 << 20
_STREAM = 32 << 20  # bytes of vectors that are put in order at once


@dataclass(frozen=True)
class DiskEmbeddings(Embeddings):
    """Vectors of which the entities' lie in a file. `entities` is empty."""

    buffer: PartitionBuffer

    @property
    def num_entities(self) -> int:
        return self.buffer.layout.num_entities

    @property
    def dim(self) -> int:
        return self.buffer.layout.dim

    def rows(self, entities: NDArray[Any]) -> NDArray[Any]:
        layout = self.buffer.layout
        found = np.empty((len(entities), layout.dim), np.float32)
        for partition in range(layout.partitions):
            own = np.flatnonzero(entities % layout.partitions == partition)
            if len(own):
                found[own] = self.buffer.read(partition, 0)[entities[own] // layout.partitions]
        return found

    def is_one_block(self, most: int) -> bool:
        return False

    def blocks(self, most: int) -> Iterator[VectorBlock]:
        step = self.buffer.layout.partitions
        for partition in range(step):
            rows = self.buffer.read(partition, 0)
            for first in range(0, len(rows), most):
                yield VectorBlock(partition + first * step, step, rows[first : first + most])


class DiskTrainer:
    """Learns embeddings of triples, with a few partitions of the entities' vectors in memory at a time.

    Negatives are drawn from the partitions in memory.

    epoch:    how many are done
    position: states of the buffer done of the next one
    losses:   of these states
    """

    def __init__(self, triples: Triples, options: EmbedOptions, scratch: Path) -> None:
        assert options.partitions is not None
        assert options.buffer is not None
        self.triples = triples
        self.options = options
        self.epoch = 0
        self.position = 0
        self.losses = EpochLosses()
        self._score = SCORES[options.score]
        layout = PartitionLayout(
            triples.num_entities, options.dim, options.partitions, 1 + moment_count(options.optimizer)
        )
        ahead = read_ahead(options.order, options.buffer)
        self.buffer = PartitionBuffer(layout, options.buffer, ScratchDirectory(scratch), ahead=ahead)
        self.buffer.fill(self._first_rows)
        vectors, *moments = self.buffer.arrays
        relations = first_relations(
            self._score, triples.num_relations, options.dim, options.seed, reciprocal=options.reciprocal
        )
        self.tables = TrainedTables.of(
            RowOptimizer(options.optimizer, vectors, list(moments), options.lr, options.unit_entities),
            RowOptimizer.of(options.optimizer, relations, options.lr),
            triples.num_relations,
        )
        if options.filter_negatives:
            self.tables.known = KnownTriples.of([triples.train], triples.num_relations)
        self._buckets = _bucketed(triples.train, options.partitions, scratch)
        self._runner = EpochRunner(options, self.tables)

    def _first_rows(self, entities: NDArray[np.int64]) -> NDArray[np.float32]:
        """The same vectors as in memory: those of an entity depend on its number and the seed."""
        options, out = self.options, np.empty((len(entities), self.options.dim), np.float32)
        for first in range(0, len(entities), _BLOCK):
            own = entities[first : first + _BLOCK]
            if not len(own):
                break
            drawn = first_entities(self._score, int(own[0]), int(own[-1]) + 1, options.dim, options.seed)
            out[first : first + len(own)] = drawn[own - own[0]]
        return out

    @property
    def embeddings(self) -> Embeddings:
        """The vectors as they are now."""
        nothing = np.empty((0, self.options.dim), np.float32)
        relations = self.tables.relations.table
        return DiskEmbeddings(self._score, nothing, relations, self.triples.num_relations, self.buffer)

    def run_epoch(self, pause: Pause = never) -> EpochLosses | None:
        """Go over all training triples once, bucket by bucket. None: it rests within the epoch; the next call goes on from there."""
        options = self.options
        assert options.partitions is not None
        assert options.buffer is not None
        random = generator(options.seed, _BUCKETS, self.epoch)
        states = ORDERS[options.order](options.partitions, options.buffer, random)
        for state in self._resident(states[self.position :]):
            self._runner.run(self._batches(state, self.position), self.losses)
            refuse_divergence(self.losses, self.epoch, options)
            self.position += 1
            if self.position < len(states) and pause():
                self.buffer.flush()
                return None
        self.buffer.flush()
        losses, self.losses = self.losses, EpochLosses()
        self.epoch, self.position = self.epoch + 1, 0
        return losses

    def _resident(self, states: list[BufferState]) -> Iterator[BufferState]:
        """Each state, once its partitions are in the buffer."""
        moves = [_moves(before, after) for before, after in pairwise(states)]
        coming = [admitted for each in moves for _, admitted in each if admitted is not None]
        self.buffer.load(states[0].resident, coming)
        yield states[0]
        for state, swaps in zip(states[1:], moves, strict=True):
            for leaving, admitted in swaps:
                if admitted is not None:
                    self.buffer.admit(admitted)
                if leaving is not None:
                    self.buffer.release(leaving)
            yield state

    def _batches(self, state: BufferState, number: int) -> Batches:
        """Triples of a state's buckets, shuffled, by rows of the buffer."""
        options, layout, slots = self.options, self.buffer.layout, self.buffer.slots
        rows = np.concatenate(
            [self._bucket(bucket) for bucket in state.buckets] or [np.empty((0, 3), np.int64)]
        )
        order = generator(options.seed, _SHUFFLE, self.epoch, number).permutation(len(rows))
        first = np.zeros(layout.partitions, np.int64)
        for partition, slot in slots.items():
            first[partition] = slot * layout.rows
        if self.tables.known is not None:
            self.tables.entity_of_row = self._entities_of_rows()
        for column in (0, 2):
            rows[:, column] = (
                first[rows[:, column] % layout.partitions] + rows[:, column] // layout.partitions
            )
        sampler = self._sampler(rows)
        for k, begin in enumerate(range(0, len(rows), options.batch)):
            key = (options.seed, NEGATIVES, self.epoch, number, k)
            yield rows[order[begin : begin + options.batch]], sampler, generator(*key)

    def _entities_of_rows(self) -> NDArray[np.int64]:
        layout, found = self.buffer.layout, np.zeros(len(self.buffer.arrays[0]), np.int64)
        for partition, slot in self.buffer.slots.items():
            found[slot * layout.rows :][: layout.count(partition)] = layout.entities(partition)
        return found

    def _sampler(self, rows: NDArray[np.int64]) -> NegativeSampler:
        layout = self.buffer.layout
        ranges = [
            (slot * layout.rows, layout.count(partition))
            for partition, slot in sorted(self.buffer.slots.items())
        ]
        ends = rows[:, [0, 2]] if self.options.degree_share else None
        return NegativeSampler(
            sum(count for _, count in ranges), self.options.degree_share, ends, tuple(ranges)
        )

    def _bucket(self, bucket: tuple[int, int]) -> NDArray[np.int64]:
        _, head, relation, tail = self._buckets.read(bucket[0] * self.buffer.layout.partitions + bucket[1])
        return np.stack([head, relation, tail], axis=1).astype(np.int64)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """All that the next epoch depends on: tables, and numbers."""
        names = ["entities", *(f"entities.moment{k}" for k in range(self.buffer.layout.kinds - 1))]
        arrays: dict[str, Any] = {name: self.streamed(kind) for kind, name in enumerate(names)}
        relations = self.tables.relations
        arrays["relations"] = relations.table
        arrays |= {f"relations.moment{k}": moment for k, moment in enumerate(relations.moments)}
        return arrays, {"entities": self.tables.entities.steps, "relations": relations.steps}

    def streamed(self, kind: int = 0) -> StreamedTable:
        """The entities' rows of one kind, in the order of entities, a few at a time."""
        layout = self.buffer.layout
        return StreamedTable(
            (layout.num_entities, layout.dim), np.dtype(np.float32), lambda: self._in_order(kind)
        )

    def _in_order(self, kind: int) -> Iterator[NDArray[np.float32]]:
        layout = self.buffer.layout
        some = layout.step * max(1, _STREAM // (layout.step * layout.partitions * layout.dim * 4))
        for first in range(0, layout.rows, some):
            last = min(first + some, layout.rows)
            rows = np.empty((last - first, layout.partitions, layout.dim), np.float32)
            for partition in range(layout.partitions):
                rows[:, partition] = self.buffer.read_range(partition, kind, first, last)
            yield rows.reshape(-1, layout.dim)[: max(0, layout.num_entities - first * layout.partitions)]

    def restore(self, arrays: dict[str, NDArray[Any]], steps: dict[str, int]) -> None:
        """Take the tables that `state` gave. ValueError: they are of other embeddings."""
        layout = self.buffer.layout
        for name, found in self.state()[0].items():
            if name not in arrays or tuple(arrays[name].shape) != tuple(found.shape):
                raise ValueError(f"it has no {name} of shape {list(found.shape)}")
        for partition in range(layout.partitions):
            self.buffer.write(partition, 0, arrays["entities"][partition :: layout.partitions])
            for kind in range(1, layout.kinds):
                moments = arrays[f"entities.moment{kind - 1}"]
                self.buffer.write(partition, kind, moments[partition :: layout.partitions])
        self.tables.relations.table[:] = arrays["relations"]
        for k, moment in enumerate(self.tables.relations.moments):
            moment[:] = arrays[f"relations.moment{k}"]
        self.tables.entities.steps, self.tables.relations.steps = steps["entities"], steps["relations"]


def _moves(before: BufferState, after: BufferState) -> list[tuple[int | None, int | None]]:
    """Which partition leaves for which, from one state to the next; None: for none, where the buffer is not full."""
    leaving = [each for each in before.resident if each not in after.resident]
    coming = [each for each in after.resident if each not in before.resident]
    return list(zip_longest(leaving, coming))


def _bucketed(rows: TripleRows, partitions: int, scratch: Path) -> Spill:
    """Triples by bucket, in a scratch file."""
    bits = max(1, (partitions * partitions - 1).bit_length())
    spill = Spill(scratch, bits, [rows.dtype, np.int32, rows.dtype], memory=_SPILL, bucket_bits=bits)
    for first in range(0, len(rows), _BLOCK):
        part = rows[first : first + _BLOCK]
        keys = (part[:, 0] % partitions).astype(np.uint64) * np.uint64(partitions)
        keys += (part[:, 2] % partitions).astype(np.uint64)
        spill.add(keys, part[:, 0], part[:, 1].astype(np.int32), part[:, 2])
    spill.flush()
    return spill

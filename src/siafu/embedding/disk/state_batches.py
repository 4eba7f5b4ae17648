"""StateBatches: the triples of a state of the buffer, shuffled, in batches, by rows of the places in which partitions are."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.disk.bucket_orders import Buckets
from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import NEGATIVES
from siafu.embedding.steps.epoch import Batches
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.negatives import (
    ChunkNegatives,
    Negatives,
    NegativeSampler,
    SharedDraw,
    generator,
)
from siafu.graph.sorting.spill import Spill
from siafu.graph.triples.triples import TripleRows

_SHUFFLE = 6  # key of the random numbers
_BLOCK = 1 << 20  # triples that are read at once
SPILL_BYTES = 64 << 20
"""Bytes that sorting triples by bucket takes."""

STATE_BYTES = 48
"""Bytes of a triple of the buffer's state: its row, its place in the shuffle, and what shuffling takes."""


class StateBatches:
    """Training triples by bucket, in a scratch file; negatives are drawn from the partitions in memory."""

    def __init__(
        self,
        rows: TripleRows,
        options: EmbedOptions,
        layout: PartitionLayout,
        tables: TrainedTables,
        scratch: Path,
    ) -> None:
        self._options, self._layout, self._tables = options, layout, tables
        self._buckets = _bucketed(rows, layout.partitions, scratch)

    def of(self, buckets: Buckets, slots: dict[int, int], epoch: int, number: int) -> Batches:
        """Triples of these buckets, shuffled. slots: the place of each partition; number: of the state in its epoch"""
        options, layout = self._options, self._layout
        rows = self._rows(buckets)
        order, labels = self._order(buckets, generator(options.seed, _SHUFFLE, epoch, number))
        first = np.zeros(layout.partitions, np.int64)
        for partition, slot in slots.items():
            first[partition] = slot * layout.rows
        if self._tables.known is not None:
            self._tables.entity_of_row = self._entities_of_rows(slots)
        for column in (0, 2):
            rows[:, column] = (
                first[rows[:, column] % layout.partitions] + rows[:, column] // layout.partitions
            )
        sources = self._sources(buckets, rows, slots)
        together = -(-options.batch // self._chunk)
        for k, begin in enumerate(range(0, len(rows), options.batch)):
            key = (options.seed, NEGATIVES, epoch, number, k)
            own = [sources[label] for label in labels[k * together : (k + 1) * together]]
            sampler = ChunkNegatives(own) if self._aligned else sources[-1]
            yield rows[order[begin : begin + options.batch]], sampler, generator(*key)

    @property
    def _chunk(self) -> int:
        return min(self._options.chunk, self._options.batch)

    @property
    def _aligned(self) -> bool:
        """Whether batches end where chunks do."""
        return self._options.batch % self._chunk == 0

    def _order(
        self, buckets: Buckets, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of triples in the order of training, and the bucket of each chunk of theirs; -1: it has triples of several.

        Triples of a chunk share their negatives. As many chunks as can be are of one bucket: its negatives can then be drawn for it.
        """
        chunk, sizes = self._chunk, self._buckets.sizes[self._numbers(buckets)]
        whole = sizes // chunk * chunk * self._aligned
        starts = np.cumsum(sizes) - sizes
        shuffled = [start + random.permutation(size) for start, size in zip(starts, sizes, strict=True)]
        rest = [each[count:] for each, count in zip(shuffled, whole, strict=True)]
        mixed = random.permutation(np.concatenate([*rest, np.empty(0, np.int64)]))
        full = len(mixed) // chunk * chunk
        chunks = [each[:count] for each, count in zip(shuffled, whole, strict=True)]
        table = np.concatenate([*chunks, mixed[:full]]).reshape(-1, chunk)
        labels = np.append(np.repeat(np.arange(len(sizes)), whole // chunk), np.full(full // chunk, -1))
        turn = random.permutation(len(table))
        last = np.full(-(-(len(mixed) - full) // chunk), -1)
        return np.append(table[turn], mixed[full:]), np.append(labels[turn], last)

    def _sources(
        self, buckets: Buckets, rows: NDArray[np.int64], slots: dict[int, int]
    ) -> dict[int, Negatives]:
        """Entities to draw negatives from, by the number of a chunk's bucket in the state; -1: of several.

        A triple is trained in one state of an epoch, and its own partitions are always there: drawn from all that is in memory, most
        of its negatives would be from these, in every epoch. So a bucket's own partitions give the share that they have of all
        entities. The others, which change from epoch to epoch, stand for all the rest.
        """
        every = self._sampler(rows, slots, slots)
        found: dict[int, Negatives] = {-1: every}
        for number, bucket in enumerate(buckets):
            others = slots.keys() - set(bucket)
            share = sum(map(self._layout.count, set(bucket))) / self._layout.num_entities
            own, rest = self._sampler(rows, slots, set(bucket)), self._sampler(rows, slots, others)
            found[number] = SharedDraw(own, rest, share) if rest.num_rows else every
        return found

    def _entities_of_rows(self, slots: dict[int, int]) -> NDArray[np.int64]:
        layout, found = self._layout, np.zeros(len(self._tables.entities.table), np.int64)
        for partition, slot in slots.items():
            found[slot * layout.rows :][: layout.count(partition)] = layout.entities(partition)
        return found

    def _sampler(
        self, rows: NDArray[np.int64], slots: dict[int, int], partitions: Iterable[int]
    ) -> NegativeSampler:
        """Draws from these partitions."""
        layout = self._layout
        ranges = [(slots[each] * layout.rows, layout.count(each)) for each in sorted(partitions)]
        ends = rows[:, ::2] if self._options.degree_share else None
        count = sum(count for _, count in ranges)
        return NegativeSampler(count, self._options.degree_share, ends, tuple(ranges))

    def _numbers(self, buckets: Buckets) -> list[int]:
        return [i * self._layout.partitions + j for i, j in buckets]

    def _rows(self, buckets: Buckets) -> NDArray[np.int64]:
        """Triples of these buckets, one bucket after the other."""
        numbers = self._numbers(buckets)
        rows = np.empty((int(self._buckets.sizes[numbers].sum()), 3), np.int64)
        at = 0
        for number in numbers:
            for _, *columns in self._buckets.pieces(number, _BLOCK):
                end = at + len(columns[0])
                for k, column in enumerate(columns):
                    rows[at:end, k] = column
                at = end
        return rows


def _bucketed(rows: TripleRows, partitions: int, scratch: Path) -> Spill:
    """Triples by bucket, in a scratch file."""
    bits = max(1, (partitions * partitions - 1).bit_length())
    spill = Spill(scratch, bits, [rows.dtype, np.int32, rows.dtype], memory=SPILL_BYTES, bucket_bits=bits)
    for first in range(0, len(rows), _BLOCK):
        part = rows[first : first + _BLOCK]
        keys = (part[:, 0] % partitions).astype(np.uint64) * np.uint64(partitions)
        keys += (part[:, 2] % partitions).astype(np.uint64)
        spill.add(keys, part[:, 0], part[:, 1].astype(np.int32), part[:, 2])
    spill.flush()
    return spill

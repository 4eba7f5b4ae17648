"""StateBatches: the triples of a state of the buffer, shuffled, in batches, by rows of the places in which partitions are."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.disk.bucket_orders import Buckets
from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import NEGATIVES
from siafu.embedding.steps.epoch import Batches
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.negatives import NegativeSampler, generator
from siafu.graph.sorting.spill import Spill
from siafu.graph.triples.triples import TripleRows

_SHUFFLE = 6  # key of the random numbers
_BLOCK = 1 << 20
_SPILL = 64 << 20


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
        rows = np.concatenate([self._bucket(bucket) for bucket in buckets] or [np.empty((0, 3), np.int64)])
        order = generator(options.seed, _SHUFFLE, epoch, number).permutation(len(rows))
        first = np.zeros(layout.partitions, np.int64)
        for partition, slot in slots.items():
            first[partition] = slot * layout.rows
        if self._tables.known is not None:
            self._tables.entity_of_row = self._entities_of_rows(slots)
        for column in (0, 2):
            rows[:, column] = (
                first[rows[:, column] % layout.partitions] + rows[:, column] // layout.partitions
            )
        sampler = self._sampler(rows, slots)
        for k, begin in enumerate(range(0, len(rows), options.batch)):
            key = (options.seed, NEGATIVES, epoch, number, k)
            yield rows[order[begin : begin + options.batch]], sampler, generator(*key)

    def _entities_of_rows(self, slots: dict[int, int]) -> NDArray[np.int64]:
        layout, found = self._layout, np.zeros(len(self._tables.entities.table), np.int64)
        for partition, slot in slots.items():
            found[slot * layout.rows :][: layout.count(partition)] = layout.entities(partition)
        return found

    def _sampler(self, rows: NDArray[np.int64], slots: dict[int, int]) -> NegativeSampler:
        layout = self._layout
        ranges = [(slot * layout.rows, layout.count(partition)) for partition, slot in sorted(slots.items())]
        ends = rows[:, [0, 2]] if self._options.degree_share else None
        count = sum(count for _, count in ranges)
        return NegativeSampler(count, self._options.degree_share, ends, tuple(ranges))

    def _bucket(self, bucket: tuple[int, int]) -> NDArray[np.int64]:
        _, head, relation, tail = self._buckets.read(bucket[0] * self._layout.partitions + bucket[1])
        return np.stack([head, relation, tail], axis=1).astype(np.int64)


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

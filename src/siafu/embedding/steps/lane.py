"""EmbeddingLane: the memory in which one batch after the other is loaded, computed and written back."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import run_all, thread_count
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.steps.batch import Batch, ChunkWork, LossTerms
from siafu.embedding.steps.dropout import drop
from siafu.embedding.steps.float_bits import computed_in
from siafu.embedding.steps.likeness import BriefDotProduct
from siafu.embedding.steps.losses import LOSSES
from siafu.embedding.steps.negatives import Negatives
from siafu.embedding.steps.row_updates import RowOptimizer, TouchedRows, gather_rows
from siafu.embedding.steps.scores import SCORES
from siafu.runtime.one_thread import one_thread

R = TypeVar("R")
Each = Callable[[Callable[[Any], Any], list[Any]], list[Any]]
"""Runs work on every item, and gives the results in order."""

_ROWS = 256  # updated by one thread at a time


def one_by_one(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """All on this thread."""
    return [work(item) for item in items]


def on_all_cores(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Items on all threads, PyTorch's operations on one each."""

    def run(item: Any) -> Any:
        with one_thread():
            return work(item)

    return run_all(run, items)


def loss_terms(options: EmbedOptions) -> LossTerms:
    """The loss that the options ask for."""
    score = SCORES[options.score]
    return LossTerms(
        replace(score, likeness=BriefDotProduct()) if options.brief_products else score,
        LOSSES[options.loss],
        options.margin,
        options.adversarial,
        options.regularization,
        3 if options.regularizer == "n3" else 2,
    )


@dataclass(slots=True)
class TrainedTables:
    """Tables that are learnt, with their optimizers.

    known:         training triples, where negatives are filtered
    entity_of_row: the entity of each row of the table; None: they are the same
    """

    entities: RowOptimizer
    relations: RowOptimizer
    num_relations: int
    relation_lock: Any
    known: KnownTriples | None = None
    entity_of_row: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, entities: RowOptimizer, relations: RowOptimizer, num_relations: int) -> "TrainedTables":
        return cls(entities, relations, num_relations, Lock())

    def set_lr(self, lr: float) -> None:
        """Take steps of this size from now on."""
        self.entities.lr = self.relations.lr = lr


class EmbeddingLane:
    """Carries batches, one at a time, from rows of the tables to updated rows."""

    def __init__(self, options: EmbedOptions, tables: TrainedTables, each: Each) -> None:
        terms, dtype = loss_terms(options), computed_in(tables.entities.table.dtype)
        negatives = len(tables.entities.table) if options.all_entities else options.negatives
        chunk, size = min(options.chunk, options.batch), (negatives, options.dim, dtype)
        self._options = options
        self._tables = tables
        self._keys = (0, 0)  # of what the entities' and the relations' dropout drops
        self._each = each
        self._batch = Batch(terms, options.batch, chunk, *size, reciprocal=options.reciprocal)
        self._work = [
            ChunkWork(terms, chunk, *size) for _ in range(thread_count() if each is not one_by_one else 1)
        ]
        self._entities = TouchedRows(len(tables.entities.table))
        self._relations = TouchedRows(len(tables.relations.table))

    def load(self, triples: NDArray[Any], sampler: Negatives, random: np.random.Generator) -> None:
        """Read the entities' rows of these triples and of negatives."""
        batch = self._batch
        heads, relations, tails = (triples[:, k].astype(np.int64) for k in range(3))
        chunks = -(-len(triples) // batch.chunk)
        negatives = sampler.draw(random, chunks, batch.negatives)
        batch.take(heads, relations, tails, negatives, self._tables.num_relations)
        gather_rows(self._tables.entities.table, batch.ids, batch.rows)
        self._keys = tuple(random.integers(1 << 62, size=2).tolist())
        drop(batch.rows, self._options.dropout, self._keys[0])

    def compute(self) -> float:
        """Gradients of all rows; the sum of the losses. Relations are read here, so that they are the latest."""
        batch = self._batch
        gather_rows(self._tables.relations.table, batch.relations, batch.relation_rows)
        drop(batch.relation_rows, self._options.relation_dropout, self._keys[1])
        free = list(self._work)
        lock = Lock()

        def run(chunk: int) -> float:
            with lock:
                work = free.pop()
            try:
                return batch.run_chunk(chunk, work, self._filtered(chunk))
            finally:
                with lock:
                    free.append(work)

        loss = float(sum(self._each(run, list(range(batch.chunks)))))
        drop(batch.gradients, self._options.dropout, self._keys[0])
        drop(batch.relation_gradients, self._options.relation_dropout, self._keys[1])
        return loss

    def update(self) -> None:
        """Update the rows. Relations first: who computes next wants them as they are now."""
        self.update_entities(self.update_relations())

    def update_relations(self) -> int:
        """Update the relations' rows; the number of the update."""
        batch, tables = self._batch, self._tables
        self._relations.list(batch.relations)
        with tables.relation_lock:
            step = tables.relations.begin_step()
            tables.relations.update(self._relations, batch.relation_gradients, step)
            return tables.entities.begin_step()

    def update_entities(self, step: int) -> None:
        """Update the entities' rows."""
        batch, tables = self._batch, self._tables
        self._entities.list(batch.ids)

        def update(first: int) -> None:
            last = min(first + self._share, len(self._entities))
            tables.entities.update(self._entities, batch.gradients, step, first, last)

        self._each(update, list(range(0, len(self._entities), self._share)))

    @property
    def _share(self) -> int:
        return max(1, len(self._entities)) if self._each is one_by_one else _ROWS

    def _filtered(self, chunk: int) -> list[NDArray[np.int64]] | None:
        tables, batch = self._tables, self._batch
        own = slice(chunk * batch.chunk, min((chunk + 1) * batch.chunk, batch.count))
        ends = [batch.ids[: batch.count][own], batch.ids[batch.count : 2 * batch.count][own]]
        if tables.known is None:
            # Of all entities, the right one is no negative.
            return [_columns(end) for end in ends[::-1]] if self._options.all_entities else None
        relations = batch.relations[: batch.count][own]
        return [
            tables.known.among(
                side,
                self._named(ends[side]),
                relations,
                self._named(batch.ids[batch.negatives_of(side, chunk)]),
            )
            for side in (0, 1)
        ]

    def _named(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        names = self._tables.entity_of_row
        return rows if names is None else names[rows]


def _columns(right: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([np.arange(len(right)), right], axis=1)

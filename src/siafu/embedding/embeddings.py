"""Embeddings: the vectors of entities and relations, and how they answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import Diverged
from siafu.base.threads import run_all
from siafu.embedding.steps.batch import HEADS
from siafu.embedding.steps.float_bits import widened
from siafu.embedding.steps.negatives import generator
from siafu.embedding.steps.scores import TripleScore
from siafu.report.files.large_tensors import StreamedTable

_ENTITIES, _RELATIONS = 1, 2  # keys of the random numbers
_WIDENED = 1 << 16  # rows that are widened at once
_ROWS = 4096  # drawn at once: the first vector of an entity depends on its number and the seed alone


class VectorBlock(NamedTuple):
    """Vectors of the entities start, start + step, start + 2 step, …"""

    start: int
    step: int
    rows: NDArray[Any]


@dataclass(frozen=True)
class Embeddings:
    """Vectors of entities and relations.

    score:      how a triple is scored by them
    entities:   [N, dim] float32
    relations:  [R, relation_width], or with reciprocal relations [2 R, …]: the second half is for questions about heads
    """

    score: TripleScore
    entities: NDArray[Any]
    relations: NDArray[Any]
    num_relations: int

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def dim(self) -> int:
        return int(self.entities.shape[1])

    @property
    def reciprocal(self) -> bool:
        return len(self.relations) > self.num_relations

    def rows(self, entities: NDArray[Any]) -> NDArray[Any]:
        """[b, dim] vectors of these entities."""
        found: NDArray[Any] = self.entities[entities]
        return found

    def blocks(self, most: int) -> Iterator[VectorBlock]:
        """All entities' vectors, at most so many at a time; every time the same blocks."""
        for first in range(0, self.num_entities, most):
            yield VectorBlock(first, 1, self.entities[first : first + most])

    def is_one_block(self, most: int) -> bool:
        """Whether `blocks` gives but one."""
        return self.num_entities <= most

    def queries(self, side: int, entities: NDArray[Any], relations: NDArray[Any]) -> NDArray[Any]:
        """[b, dim] what the missing ends of triples are compared with; side: which end is missing."""
        inverse = side == HEADS and not self.reciprocal
        shift = self.num_relations if side == HEADS and self.reciprocal else 0
        q = np.empty((len(entities), self.dim), self.relations.dtype)
        self.score.query(self.rows(entities), self.relations[relations + shift], inverse, q)
        return q

    def scores(self, queries: NDArray[Any], first: int, last: int) -> NDArray[Any]:
        """[b, last - first] how well each of these entities answers each query."""
        out = np.empty((len(queries), last - first), self.entities.dtype)
        self.score.likeness.matrix(queries, self.entities[first:last], out)
        return out

    def score_triples(self, triples: NDArray[Any]) -> NDArray[Any]:
        """[N] the score of each triple, asked for its tail; with reciprocal relations the mean of both questions."""
        out = np.empty(len(triples), self.entities.dtype)
        self.score.likeness.pairs(
            self.queries(0, triples[:, 0], triples[:, 1]), self.entities[triples[:, 2]], out
        )
        if self.reciprocal:
            back = np.empty_like(out)
            asked = self.queries(HEADS, triples[:, 2], triples[:, 1])
            self.score.likeness.pairs(asked, self.entities[triples[:, 0]], back)
            out = (out + back) / 2
        return out

    def refuse_nan(self) -> None:
        """Refuse to answer with what is no number."""
        finite = all(np.isfinite(block.rows).all() for block in self.blocks(1 << 16))
        if not (finite and np.isfinite(self.relations).all()):
            raise Diverged(
                "the embeddings hold numbers that are none: training diverged; choose a lower learning rate (lr)"
            )


@dataclass(frozen=True)
class BriefEmbeddings(Embeddings):
    """Vectors of which the entities' are bfloat16: `entities` is [N, dim] uint16. They are widened a block at a time."""

    def rows(self, entities: NDArray[Any]) -> NDArray[Any]:
        return widened(self.entities[entities])

    def blocks(self, most: int) -> Iterator[VectorBlock]:
        for block in super().blocks(most):
            yield block._replace(rows=widened(block.rows))

    def is_one_block(self, most: int) -> bool:
        return False

    def whole(self) -> Embeddings:
        """The same vectors in float32."""
        return Embeddings(self.score, widened(self.entities), self.relations, self.num_relations)


def widened_stream(table: NDArray[Any]) -> StreamedTable:
    """A table of bfloat16 in float32, a block at a time."""
    firsts = range(0, len(table), _WIDENED)
    return StreamedTable(
        table.shape,
        np.dtype(np.float32),
        lambda: (widened(table[first : first + _WIDENED]) for first in firsts),
    )


def first_entities(score: TripleScore, first: int, last: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Vectors of the entities from `first` to `last` before any training: the same, however they are divided."""
    out = np.empty((last - first, dim), np.float32)
    bound = np.float32(score.start(dim))

    def draw(block: int) -> None:
        drawn = generator(seed, _ENTITIES, block).random((_ROWS, dim), dtype=np.float32)
        begin, end = max(first, block * _ROWS), min(last, (block + 1) * _ROWS)
        own = drawn[begin - block * _ROWS : end - block * _ROWS]
        np.multiply(2 * own - 1, bound, out=out[begin - first : end - first])

    run_all(draw, range(first // _ROWS, -(-last // _ROWS)))
    return out


def first_relations(
    score: TripleScore, num_relations: int, dim: int, seed: int, *, reciprocal: bool
) -> NDArray[np.float32]:
    """Vectors of the relations before any training."""
    count, width = (1 + reciprocal) * num_relations, score.relation_width(dim)
    drawn = 2 * generator(seed, _RELATIONS).random((count, width), dtype=np.float32) - 1
    bound = np.pi if score.angles else score.start(dim)
    return drawn * np.float32(bound)

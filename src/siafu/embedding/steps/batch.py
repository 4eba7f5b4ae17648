"""Batch: some triples and their negatives, from rows to the gradients of rows.

A batch is cut into chunks. The triples of a chunk share their negatives, so that scores are products of matrices. Chunks
do not depend on each other: threads may take one each, with the same result.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.embedding.steps.float_bits import as_kind
from siafu.embedding.steps.losses import FILTERED, RankingLoss
from siafu.embedding.steps.scores import TripleScore

TAILS, HEADS = 0, 1
"""Sides of a triple that are asked for: the tail of (h, r, ?), the head of (?, r, t)."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Triples of a batch, and its negatives.

    margin:         γ of the losses logistic and margin
    temperature:    of self-adversarial negatives (logistic); 0: all count alike
    regularization: weight of the penalty on the rows of the positives
    power:          of that penalty: 3 (N3: Σ |x|³, of complex numbers the moduli's) or 2 (L2: Σ x²)
    """

    score: TripleScore
    loss: RankingLoss
    margin: float = 0.0
    temperature: float = 0.0
    regularization: float = 0.0
    power: int = 3


class Batch:
    """Rows of one batch, and their gradients. Used again and again: sizes are the largest.

    ids:       [2 b + 2 C n] rows of the entity table: heads, tails, then for each side the negatives of each chunk
    relations: [b], or with reciprocal relations [2 b]: rows of the relation table, for each side
    rows:      the rows of `ids`; `gradients` are theirs
    relation_rows, relation_gradients: the same of `relations`
    """

    def __init__(
        self,
        terms: LossTerms,
        size: int,
        chunk: int,
        negatives: int,
        dim: int,
        dtype: Any,
        *,
        reciprocal: bool,
    ) -> None:
        self.terms = terms
        self.chunk = chunk
        self.negatives = negatives
        self.reciprocal = reciprocal
        chunks = -(-size // chunk)
        most, width = 2 * size + 2 * chunks * negatives, terms.score.relation_width(dim)
        self._entity_rows = np.empty((2, most, dim), dtype)
        self._relation_rows = np.empty((2, 2 * size, width), dtype)
        self.count = 0
        self._show(np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def chunks(self) -> int:
        return -(-self.count // self.chunk)

    def take(
        self,
        heads: NDArray[np.int64],
        relations: NDArray[np.int64],
        tails: NDArray[np.int64],
        negatives: NDArray[np.int64],
        num_relations: int,
    ) -> None:
        """Begin with these triples, by rows of the tables. negatives: [2, C, n]"""
        self.count = len(heads)
        self._show(
            np.concatenate([heads, tails, negatives.reshape(-1)]),
            np.concatenate([relations, relations + num_relations]) if self.reciprocal else relations,
        )

    def _show(self, ids: NDArray[np.int64], relations: NDArray[np.int64]) -> None:
        self.ids, self.relations = ids, relations
        self.rows, self.gradients = self._entity_rows[:, : len(ids)]
        self.relation_rows, self.relation_gradients = self._relation_rows[:, : len(relations)]

    def negatives_of(self, side: int, chunk: int) -> slice:
        """Where the negatives of a chunk stand in `ids`."""
        begin = 2 * self.count + (side * self.chunks + chunk) * self.negatives
        return slice(begin, begin + self.negatives)

    def run_chunk(
        self, chunk: int, work: "ChunkWork", filtered: "list[NDArray[np.int64]] | None" = None
    ) -> float:
        """Set the gradients of a chunk's rows; the sum of its losses.

        filtered: for each side, pairs (triple of the chunk, negative) that are known to be true
        """
        first = chunk * self.chunk
        own = slice(first, min(first + self.chunk, self.count))
        ends = (own, slice(own.start + self.count, own.stop + self.count))
        for end in ends:
            self.gradients[end] = 0
        self.relation_gradients[own] = 0
        total = 0.0
        for side in (TAILS, HEADS):
            # With reciprocal relations the head's side has relations of its own, and asks as the tail's side does.
            mine = slice(own.start + self.count, own.stop + self.count) if self._apart(side) else own
            if self._apart(side):
                self.relation_gradients[mine] = 0
            pairs = None if filtered is None else filtered[side]
            known, asked = ends if side == TAILS else ends[::-1]
            total += self._run_side(side, known, asked, mine, self.negatives_of(side, chunk), work, pairs)
        if self.terms.regularization:
            total += self._regularize(own, ends)
        return total

    def _apart(self, side: int) -> bool:
        return self.reciprocal and side == HEADS

    def _run_side(
        self,
        side: int,
        known: slice,
        asked: slice,
        relation: slice,
        negatives: slice,
        work: "ChunkWork",
        filtered: NDArray[np.int64] | None,
    ) -> float:
        terms, likeness = self.terms, self.terms.score.likeness
        q, dq, positives, of_positives, scores, gradients = work.views(known.stop - known.start)
        a, r, b, x = self.rows[known], self.relation_rows[relation], self.rows[asked], self.rows[negatives]
        inverse = side == HEADS and not self.reciprocal
        terms.score.query(a, r, inverse, q)
        likeness.pairs(q, b, positives)
        kept = likeness.matrix(q, x, scores)
        if filtered is not None:
            scores[filtered[:, 0], filtered[:, 1]] = as_kind(np.array([FILTERED], a.dtype), scores.dtype)
        if gradients is not scores:
            gradients[:] = scores
        total = terms.loss(positives, gradients, terms.margin, terms.temperature, of_positives)
        likeness.matrix_back(q, x, scores, gradients, dq, self.gradients[negatives], kept)
        likeness.pairs_back(q, b, positives, of_positives, dq, self.gradients[asked])
        terms.score.query_back(a, r, q, dq, inverse, self.gradients[known], self.relation_gradients[relation])
        return total

    def _regularize(self, own: slice, ends: tuple[slice, slice]) -> float:
        weight, power = self.terms.regularization, self.terms.power
        is_complex = self.terms.score.is_complex
        total = 0.0
        for end in ends:
            total += _penalty(self.rows[end], self.gradients[end], weight, power, is_complex)
        if self.terms.score.relation_share == 1.0 and self.terms.score.has_relations:
            sides = [own, slice(own.start + self.count, own.stop + self.count)][: 1 + self.reciprocal]
            for mine in sides:
                total += _penalty(
                    self.relation_rows[mine], self.relation_gradients[mine], weight, power, is_complex
                )
        return total


class ChunkWork:
    """Memory for the scores of one chunk: one for each thread."""

    def __init__(self, terms: LossTerms, chunk: int, negatives: int, dim: int, dtype: Any) -> None:
        self._q, self._dq = np.empty((chunk, dim), dtype), np.empty((chunk, dim), dtype)
        self._positives, self._of_positives = np.empty(chunk, dtype), np.empty(chunk, dtype)
        self._scores = np.empty((chunk, negatives), terms.score.likeness.matrix_type(np.dtype(dtype)))
        self._gradients = np.empty_like(self._scores) if terms.score.likeness.keeps_matrix else self._scores

    def views(self, count: int) -> tuple[Any, Any, Any, Any, Any, Any]:
        """Queries, their gradients, scores of positives, theirs, scores of negatives, theirs (perhaps the same)."""
        scores = self._scores[:count]
        gradients = scores if self._gradients is self._scores else self._gradients[:count]
        return (
            self._q[:count],
            self._dq[:count],
            self._positives[:count],
            self._of_positives[:count],
            scores,
            gradients,
        )


@kernel
def _penalty(rows: Any, gradients: Any, weight: float, power: int, is_complex: bool) -> float:
    """Add the gradient of weight * Σ |x|^power; the sum."""
    total = 0.0
    half = rows.shape[1] // 2
    scale = rows.dtype.type(weight * power)
    for i in range(rows.shape[0]):
        if power == 3 and is_complex:
            for j in range(half):
                modulus = np.sqrt(rows[i, j] * rows[i, j] + rows[i, j + half] * rows[i, j + half])
                gradients[i, j] += scale * modulus * rows[i, j]
                gradients[i, j + half] += scale * modulus * rows[i, j + half]
                total += modulus * modulus * modulus
        else:
            for j in range(rows.shape[1]):
                size = abs(rows[i, j]) if power == 3 else rows.dtype.type(1)
                gradients[i, j] += scale * size * rows[i, j]
                total += size * rows[i, j] * rows[i, j]
    return weight * total

"""Ranking: where the right entity stands among all candidates, for every held-out triple, both ways.

Ranks are filtered: other entities that make a known triple do not count as better. Scores are made in blocks of queries and
entities that fit the budget.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count
from siafu.embedding.embed_options import TIES
from siafu.embedding.embeddings import Embeddings, VectorBlock
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.steps.batch import HEADS, TAILS
from siafu.graph.triples.triples import TripleRows
from siafu.runtime.one_thread import one_thread

HITS = (1, 3, 10)
TIE_SHARES = {"mean": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
"""How much a candidate with the same score counts as better."""

_QUERIES = 256  # a block: enough rows for a fast product
_BLOCK_BYTES = 16 << 20  # of scores, if the budget allows: larger ones fall out of the caches
_LEAST_COLUMNS = 1024
_TRIPLES = 1 << 18  # whose queries are held at once


@dataclass(frozen=True, slots=True)
class RankScores:
    """Mean reciprocal rank and hits of some ranks.

    mrr:   mean of the reciprocal ranks
    hits:  share of ranks up to 1, 3 and 10
    count: how many ranks: two a triple
    """

    mrr: float
    hits: dict[int, float]
    count: int

    @classmethod
    def of(cls, ranks: NDArray[np.float64]) -> "RankScores":
        return cls(float((1 / ranks).mean()), {k: float((ranks <= k).mean()) for k in HITS}, len(ranks))

    def as_json(self, split: str) -> dict[str, float]:
        return {f"{split}_mrr": self.mrr, **{f"{split}_hits_at_{k}": self.hits[k] for k in HITS}}


def rank_triples(
    embeddings: Embeddings,
    triples: TripleRows,
    known: KnownTriples | None,
    *,
    ties: str = "mean",
    memory: int | None = None,
) -> NDArray[np.float64]:
    """[2 N] ranks from 1 up: of the tails of (head, relation, ?), then of the heads of (?, relation, tail).

    known:  triples that are true: their entities are not counted as better; None: all count (raw ranks)
    ties:   candidates with the same score count as better by half ("mean": the mean of the best and the worst rank), not at
            all ("optimistic") or fully ("pessimistic")
    memory: bytes that the scores may take, over all threads
    """
    if ties not in TIES:
        raise BadInput(f"ties is {ties!r}: choose one of {', '.join(TIES)}")
    embeddings.refuse_nan()
    counted = [
        _Questions(embeddings, triples[first : first + _TRIPLES], known).counts(memory)
        for first in range(0, len(triples), _TRIPLES)
    ]
    better, equal = np.concatenate(counted, axis=2).reshape(2, -1) if counted else np.zeros((2, 0), np.int64)
    ranks: NDArray[np.float64] = 1.0 + better + TIE_SHARES[ties] * equal
    return ranks


def _columns(num_entities: int, memory: int | None) -> int:
    """Entities that are scored at once."""
    usual = _BLOCK_BYTES if memory is None else min(_BLOCK_BYTES, memory // (2 * thread_count()))
    return min(num_entities, max(_LEAST_COLUMNS, usual // (4 * _QUERIES)))


class _Questions:
    """Both questions of some triples, in the order of the right answers, so that those of a block of entities stand together."""

    def __init__(self, embeddings: Embeddings, triples: TripleRows, known: KnownTriples | None) -> None:
        self._embeddings = embeddings
        self._sides = [_Side(embeddings, triples, side, known) for side in (TAILS, HEADS)]
        self._count = len(triples)

    def counts(self, memory: int | None) -> NDArray[np.int64]:
        """[2, 2, b] for each side, how many candidates score better than the right one, and how many the same; in turn."""
        columns = _columns(self._embeddings.num_entities, memory)
        jobs = [
            (side, slice(first, min(first + _QUERIES, self._count)))
            for side in self._sides
            for first in range(0, self._count, _QUERIES)
        ]
        whole = self._embeddings.is_one_block(columns)
        likeness = self._embeddings.score.likeness

        def scores(side: "_Side", own: slice, block: VectorBlock) -> NDArray[Any]:
            with one_thread():  # a product's bits do not depend on the number of cores
                out = np.empty((own.stop - own.start, len(block.rows)), side.queries.dtype)
                likeness.matrix(side.queries[own], block.rows, out)
                return out

        # The right one's score must be that of the same product, to the bit, or it would not tie with its equals.
        for block in () if whole else self._embeddings.blocks(columns):

            def note(job: tuple[_Side, slice], block: VectorBlock = block) -> None:
                job[0].note_goals(job[1], block, scores(job[0], job[1], block))

            run_all(note, [job for job in jobs if job[0].has_goals(job[1], block)])
        for block in self._embeddings.blocks(columns):

            def count(job: tuple[_Side, slice], block: VectorBlock = block) -> None:
                found = scores(job[0], job[1], block)
                if whole:
                    job[0].note_goals(job[1], block, found)
                job[0].count(job[1], block, found)

            run_all(count, jobs)
        return np.stack([side.in_order() for side in self._sides], axis=1)


class _Side:
    """Questions about one end of some triples.

    queries: [b, dim] what candidates are compared with
    right:   [b] the right entities, ascending
    goal:    [b] their scores
    """

    def __init__(
        self, embeddings: Embeddings, triples: TripleRows, side: int, known: KnownTriples | None
    ) -> None:
        at, asked = (0, 2) if side == TAILS else (2, 0)
        self._order = np.argsort(triples[:, asked], kind="stable")
        triples = triples[self._order]
        self.queries = embeddings.queries(side, triples[:, at], triples[:, 1])
        self.right = triples[:, asked].astype(np.int64)
        self._spans = np.zeros((len(triples), 2), np.int64)
        self._answers: NDArray[Any] = self.right[:0]
        if known is not None:
            self._spans, self._answers = (
                known.spans(side, triples[:, at], triples[:, 1]),
                known.answers[side],
            )
        self.goal = np.full(len(triples), np.nan, self.queries.dtype)
        self._counts = np.zeros((2, len(triples)), np.int64)

    def has_goals(self, own: slice, block: VectorBlock) -> bool:
        """Whether the block has the right answer to one of these questions."""
        return bool((_columns_of(self.right[own], block) >= 0).any())

    def note_goals(self, own: slice, block: VectorBlock, scores: NDArray[Any]) -> None:
        """Keep the scores of the right answers that the block has."""
        columns = _columns_of(self.right[own], block)
        there = np.flatnonzero(columns >= 0)
        self.goal[own][there] = scores[there, columns[there]]

    def count(self, own: slice, block: VectorBlock, scores: NDArray[Any]) -> None:
        """Count the candidates of a block."""
        place = (block.start, block.step)
        _count(
            scores,
            *place,
            self.goal[own],
            self.right[own],
            self._spans[own],
            self._answers,
            self._counts[:, own],
        )

    def in_order(self) -> NDArray[np.int64]:
        """[2, b] the counts in the order of the triples."""
        found = np.empty_like(self._counts)
        found[:, self._order] = self._counts
        return found


def _columns_of(entities: NDArray[np.int64], block: VectorBlock) -> NDArray[np.int64]:
    """Columns of entities in a block; -1: it does not have them."""
    distance = entities - block.start
    there = (distance >= 0) & (distance % block.step == 0) & (distance // block.step < len(block.rows))
    return np.where(there, distance // block.step, -1)


@kernel
def _count(
    scores: Any,
    start: int,
    step: int,
    goal: Any,
    right: NDArray[np.int64],
    spans: NDArray[np.int64],
    answers: Any,
    counts: NDArray[np.int64],
) -> None:
    for i in range(scores.shape[0]):
        wanted = goal[i]
        better, equal = np.int32(0), np.int32(0)
        for j in range(scores.shape[1]):
            better += np.int32(scores[i, j] > wanted)
            equal += np.int32(scores[i, j] == wanted)
        for k in range(spans[i, 0], spans[i, 1]):
            distance = answers[k] - start
            inside = distance >= 0 and distance % step == 0 and distance // step < scores.shape[1]
            if inside and answers[k] != right[i]:
                found = scores[i, distance // step]
                better -= np.int32(found > wanted)
                equal -= np.int32(found == wanted)
        distance = right[i] - start
        if distance >= 0 and distance % step == 0 and distance // step < scores.shape[1]:
            equal -= np.int32(1)
        counts[0, i] += better
        counts[1, i] += equal

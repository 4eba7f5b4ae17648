"""Known triples: which tails a (head, relation) has, and which heads a (relation, tail)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.embedding.steps.batch import HEADS, TAILS
from siafu.graph.triples.triples import TripleRows

_BLOCK = 1 << 22  # triples that are looked at as one


@dataclass(frozen=True, slots=True)
class KnownTriples:
    """Answers to all questions that some triples answer, as two compressed lists.

    keys:    by side, [K] entity * num_relations + relation of each question, ascending
    starts:  by side, [K + 1] where each one's answers begin
    answers: by side, entities, ascending within a question
    """

    keys: tuple[NDArray[np.int64], NDArray[np.int64]]
    starts: tuple[NDArray[np.int64], NDArray[np.int64]]
    answers: tuple[NDArray[Any], NDArray[Any]]
    num_relations: int

    @classmethod
    def of(
        cls, parts: list[TripleRows], num_relations: int, asked: TripleRows | None = None
    ) -> "KnownTriples":
        """The answers in these lists of triples; asked: only to the questions about these."""
        sides = []
        for side in (TAILS, HEADS):
            wanted = None if asked is None else np.unique(_questions(asked, side, num_relations))
            kept = [
                _asked_for(rows[first : first + _BLOCK], side, num_relations, wanted)
                for rows in parts
                for first in range(0, len(rows), _BLOCK)
            ]
            sides.append(_listed(np.concatenate(kept), side, num_relations))
        keys, starts, answers = zip(*sides, strict=True)
        return cls(keys, starts, answers, num_relations)

    def spans(self, side: int, entities: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """[b, 2] where the answers to each question begin and end in `answers[side]`."""
        wanted = entities.astype(np.int64) * self.num_relations + relations
        keys, starts = self.keys[side], self.starts[side]
        at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        found = keys[at] == wanted
        return np.stack([np.where(found, starts[at], 0), np.where(found, starts[at + 1], 0)], axis=1)

    def among(
        self, side: int, entities: NDArray[Any], relations: NDArray[Any], candidates: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """[m, 2] which questions (rows) are answered by which of the candidates (columns), each twice where it stands twice."""
        order = np.argsort(candidates, kind="stable")
        spans = self.spans(side, entities, relations)
        count = _count_among(spans, self.answers[side], candidates[order])
        pairs = np.empty((count, 2), np.int64)
        _among(spans, self.answers[side], candidates[order], order, pairs)
        return pairs


def _questions(rows: TripleRows, side: int, num_relations: int) -> NDArray[np.int64]:
    known = rows[:, 0 if side == TAILS else 2].astype(np.int64)
    found: NDArray[np.int64] = known * num_relations + rows[:, 1]
    return found


def _asked_for(
    rows: TripleRows, side: int, num_relations: int, wanted: NDArray[np.int64] | None
) -> TripleRows:
    """Triples that answer one of the wanted questions."""
    if wanted is None:
        return rows
    keys = _questions(rows, side, num_relations)
    at = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    found: TripleRows = rows[wanted[at] == keys]
    return found


def _listed(
    rows: TripleRows, side: int, num_relations: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    asked = 2 if side == TAILS else 0
    keys = _questions(rows, side, num_relations)
    order = np.lexsort((rows[:, asked], keys))
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.append(first, len(keys)), np.ascontiguousarray(rows[order, asked])


@kernel
def _count_among(spans: NDArray[np.int64], answers: Any, candidates: NDArray[np.int64]) -> int:
    count = 0
    for i in range(len(spans)):
        for k in range(spans[i, 0], spans[i, 1]):
            at = np.searchsorted(candidates, answers[k])
            while at < len(candidates) and candidates[at] == answers[k]:
                count += 1
                at += 1
    return count


@kernel
def _among(
    spans: NDArray[np.int64],
    answers: Any,
    candidates: NDArray[np.int64],
    order: NDArray[np.int64],
    pairs: NDArray[np.int64],
) -> None:
    count = 0
    for i in range(len(spans)):
        for k in range(spans[i, 0], spans[i, 1]):
            at = np.searchsorted(candidates, answers[k])
            while at < len(candidates) and candidates[at] == answers[k]:
                pairs[count, 0], pairs[count, 1] = i, order[at]
                count += 1
                at += 1

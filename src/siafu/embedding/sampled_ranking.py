"""Ranks among a sample of candidates: for graphs with so many entities that ranking among all takes too long.

Ranks among few are better than among all, so these are no measure to compare with other people's: a result names the sample.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import run_all
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import TIE_SHARES
from siafu.embedding.steps.batch import HEADS, TAILS
from siafu.embedding.steps.negatives import generator
from siafu.graph.triples.triples import TripleRows
from siafu.runtime.one_thread import one_thread

_QUERIES = 256
_SAMPLE = 7  # key of the random numbers


def draw_candidates(num_entities: int, count: int, seed: int) -> NDArray[np.int64]:
    """So many different entities, ascending: always the same of a seed."""
    random = generator(seed, _SAMPLE)
    if 4 * count > num_entities:
        return np.sort(random.permutation(num_entities)[:count])
    drawn = np.empty(0, np.int64)
    while len(drawn) < count:
        drawn = np.unique(np.concatenate([drawn, random.integers(0, num_entities, count)]))
    return np.sort(random.permutation(drawn)[:count])


def rank_among(
    embeddings: Embeddings,
    triples: TripleRows,
    candidates: NDArray[np.int64],
    known: KnownTriples | None,
    *,
    ties: str = "mean",
) -> NDArray[np.float64]:
    """[2 N] ranks among the right entity and those candidates that do not make a known triple; see `rank_triples`."""
    embeddings.refuse_nan()
    rows = embeddings.rows(candidates)
    found = np.empty((2, len(triples)))
    share = TIE_SHARES[ties]

    def rank(job: tuple[int, int]) -> None:
        side, first = job
        own = triples[first : first + _QUERIES]
        better, equal = _counted(embeddings, own, side, candidates, rows, known)
        found[side, first : first + len(own)] = 1 + better + share * equal

    run_all(rank, [(side, first) for side in (TAILS, HEADS) for first in range(0, len(triples), _QUERIES)])
    return found.reshape(-1)


def _counted(
    embeddings: Embeddings,
    triples: TripleRows,
    side: int,
    candidates: NDArray[np.int64],
    rows: NDArray[Any],
    known: KnownTriples | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    at, asked = (0, 2) if side == TAILS else (2, 0)
    right = triples[:, asked].astype(np.int64)
    likeness = embeddings.score.likeness
    with one_thread():
        queries = embeddings.queries(side, triples[:, at], triples[:, 1])
        scores = np.empty((len(triples), len(rows)), queries.dtype)
        goals = np.empty((len(triples), len(triples)), queries.dtype)
        likeness.matrix(queries, rows, scores)
        likeness.matrix(queries, embeddings.rows(right), goals)
    if known is not None:
        out = known.among(side, triples[:, at], triples[:, 1], candidates)
        scores[out[:, 0], out[:, 1]] = -np.inf
    places = np.minimum(np.searchsorted(candidates, right), len(candidates) - 1)
    there = np.flatnonzero(candidates[places] == right)
    scores[there, places[there]] = -np.inf
    wanted = np.diagonal(goals)[:, None]
    return (scores > wanted).sum(axis=1), (scores == wanted).sum(axis=1)

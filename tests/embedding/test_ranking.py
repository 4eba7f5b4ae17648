"""Ranks against a reference that sorts, triple by triple, and knows nothing of blocks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from siafu.base.errors import BadInput, Diverged
from siafu.embedding import ranking
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import RankScores, rank_triples
from siafu.embedding.steps.scores import SCORES
from tests.embedding import references


def embeddings_of(
    score: str, entities: int = 30, relations: int = 3, *, levels: int = 0, reciprocal: bool = False
) -> Embeddings:
    """Random vectors; levels: of so few different numbers that scores tie."""
    rng, kind = np.random.default_rng(1), SCORES[score]
    shapes = [(entities, 6), ((1 + reciprocal) * relations, kind.relation_width(6))]
    tables = [
        (rng.integers(-levels, levels + 1, shape) if levels else rng.standard_normal(shape)).astype(
            np.float32
        )
        for shape in shapes
    ]
    return Embeddings(kind, *tables, relations)


def slow_ranks(
    found: Embeddings, triples: NDArray[Any], known: set[tuple[int, ...]], ties: str
) -> list[float]:
    """Filtered ranks by sorting every candidate's score, in doubles."""
    import torch

    entities, relations = (
        torch.tensor(each, dtype=torch.float64) for each in (found.entities, found.relations)
    )
    ranks = []
    for side in (0, 1):
        for h, r, t in triples.tolist():
            candidates = [(h, r, e) if side == 0 else (e, r, t) for e in range(found.num_entities)]
            kept = [each for each in candidates if each == (h, r, t) or each not in known]
            if side == 1 and found.reciprocal:
                asked = [(c[2], c[1] + found.num_relations, c[0]) for c in kept]
            else:
                asked = kept
            heads, kinds, tails = (torch.tensor(column) for column in zip(*asked, strict=True))
            scores = references.score(
                found.score.name, entities[heads], relations[kinds], entities[tails]
            ).tolist()
            own = scores[kept.index((h, r, t))]
            ordered = sorted(scores, reverse=True)
            best = ordered.index(own) + 1
            worst = len(ordered) - ordered[::-1].index(own)
            ranks.append({"mean": (best + worst) / 2, "optimistic": best, "pessimistic": worst}[ties])
    return ranks


def some_triples(count: int = 40, entities: int = 30) -> NDArray[Any]:
    return np.unique(np.random.default_rng(0).integers(0, (entities, 3, entities), (count, 3)), axis=0)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.slow
def test_ranks_are_those_of_sorting(score: str, reciprocal: bool) -> None:
    found, triples = embeddings_of(score, reciprocal=reciprocal), some_triples()
    known = KnownTriples.of([triples], 3)
    wanted = slow_ranks(found, triples, {tuple(row) for row in triples.tolist()}, "mean")
    assert rank_triples(found, triples, known).tolist() == wanted


@pytest.mark.parametrize("columns", [7, 30])
@pytest.mark.parametrize("ties", ["mean", "optimistic", "pessimistic"])
@pytest.mark.parametrize("score", ["distmult", "transe-l1"])
def test_ties_count_as_asked_in_blocks_of_any_size(
    score: str, ties: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "_columns", lambda *_: columns)
    monkeypatch.setattr(ranking, "_QUERIES", 11)
    found, triples = embeddings_of(score, levels=1), some_triples()
    known = KnownTriples.of([triples], 3)
    wanted = slow_ranks(found, triples, {tuple(row) for row in triples.tolist()}, ties)
    assert rank_triples(found, triples, known, ties=ties).tolist() == wanted


def test_entities_that_all_score_the_same_stand_in_the_middle() -> None:
    found = embeddings_of("distmult")
    found.entities[:] = 1.0
    ranks = rank_triples(found, np.array([[0, 0, 1]]), None)
    assert ranks.tolist() == [15.5, 15.5]


def test_raw_ranks_count_known_triples() -> None:
    found, triples = embeddings_of("distmult"), some_triples()
    raw, filtered = (
        rank_triples(found, triples, None),
        rank_triples(found, triples, KnownTriples.of([triples], 3)),
    )
    assert (raw >= filtered).all()
    assert (raw > filtered).any()
    assert raw.tolist() == slow_ranks(found, triples, set(), "mean")


def test_scores_are_means_over_ranks() -> None:
    scores = RankScores.of(np.array([1.0, 2.0, 4.0, 20.0]))
    assert scores.mrr == pytest.approx((1 + 0.5 + 0.25 + 0.05) / 4)
    assert scores.hits == {1: 0.25, 3: 0.5, 10: 0.75}
    assert scores.as_json("test")["test_hits_at_10"] == 0.75


def test_vectors_that_are_no_numbers_are_not_ranked() -> None:
    found = embeddings_of("distmult")
    found.entities[3, 2] = np.nan
    with pytest.raises(Diverged, match="training diverged"):
        rank_triples(found, some_triples(), None)


def test_unknown_ties_are_refused() -> None:
    with pytest.raises(BadInput, match="choose one of mean"):
        rank_triples(embeddings_of("dot"), some_triples(), None, ties="random")


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=60),
    st.data(),
)
@pytest.mark.slow
def test_known_triples_answer_every_question(facts: list[tuple[int, int, int]], data: st.DataObject) -> None:
    known = KnownTriples.of([np.array(sorted(set(facts)), np.int32)], 3)
    candidates = np.array(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=9)))
    asked = np.array([(e, r) for e in range(7) for r in range(3)])
    for side in (0, 1):
        pairs = known.among(side, asked[:, 0], asked[:, 1], candidates)
        wanted = {
            (i, k)
            for i, (e, r) in enumerate(asked.tolist())
            for k, c in enumerate(candidates.tolist())
            if ((e, r, c) if side == 0 else (c, r, e)) in set(facts)
        }
        assert {tuple(pair) for pair in pairs.tolist()} == wanted
        assert len(pairs) == len(wanted)

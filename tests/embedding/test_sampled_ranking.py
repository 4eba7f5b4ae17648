"""Ranks among a sample against ranks among all, and against a loop over candidates."""

import numpy as np
import pytest

from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import rank_triples
from siafu.embedding.sampled_ranking import draw_candidates, rank_among
from tests.embedding.test_embed import learn
from tests.embedding.test_ranking import embeddings_of, some_triples


@pytest.mark.parametrize("ties", ["mean", "optimistic", "pessimistic"])
@pytest.mark.parametrize("score", ["distmult", "transe-l1"])
@pytest.mark.slow
def test_a_sample_of_all_entities_ranks_as_all_do(score: str, ties: str) -> None:
    found, triples = embeddings_of(score, levels=2, reciprocal=True), some_triples()
    known = KnownTriples.of([triples], 3)
    wanted = rank_triples(found, triples, known, ties=ties)
    assert np.array_equal(rank_among(found, triples, np.arange(30), known, ties=ties), wanted)


@pytest.mark.parametrize("filtered", [True, False])
def test_ranks_count_the_candidates_that_are_better_and_no_known_answer(filtered: bool) -> None:
    found, triples = embeddings_of("complex"), some_triples()
    candidates = draw_candidates(30, 11, 0)
    known = KnownTriples.of([triples], 3) if filtered else None
    facts = {tuple(row) for row in triples.tolist()} if filtered else set()
    ranks = rank_among(found, triples, candidates, known)
    for k, (h, r, t) in enumerate(triples.tolist()):
        tails = [(h, r, e) for e in candidates.tolist() if (h, r, e) not in facts and e != t]
        heads = [(e, r, t) for e in candidates.tolist() if (e, r, t) not in facts and e != h]
        own = found.score_triples(np.array([(h, r, t)]))[0]
        for side, others in enumerate((tails, heads)):
            scores = found.score_triples(np.array(others))
            assert ranks[side * len(triples) + k] == 1 + (scores > own).sum()


@pytest.mark.parametrize(("entities", "count"), [(10, 10), (1000, 300), (10**7, 2000)])
def test_candidates_are_different_and_always_the_same(entities: int, count: int) -> None:
    drawn = draw_candidates(entities, count, 3)
    assert len(np.unique(drawn)) == count
    assert drawn[0] >= 0 and drawn[-1] < entities
    assert (np.diff(drawn) > 0).all()
    assert np.array_equal(drawn, draw_candidates(entities, count, 3))


@pytest.mark.parametrize("more", [{}, {"partitions": 4, "buffer": 2}])
@pytest.mark.slow
def test_a_result_names_the_sample_that_it_was_ranked_among(more: dict[str, int]) -> None:
    among = learn(candidates=20, exact=True, **more).summary()
    assert among["candidates"] == 20
    assert among["test_mrr"] > learn(exact=True, **more).summary()["test_mrr"]

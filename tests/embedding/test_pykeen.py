"""Our evaluator against PyKEEN's, on the same embeddings. PyKEEN is no dependency: without it these are skipped.

The reference in test_ranking.py, which is independent of both, always runs.
"""

import importlib.util

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import RankScores, rank_triples
from tests.embedding.knowledge import families, small_options

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pykeen") is None, reason="PyKEEN is not installed: pip install pykeen"
)


def parameter_of(rows: NDArray[np.float32], shape: torch.Size, *, is_complex: bool) -> torch.Tensor:
    if not is_complex:
        return torch.tensor(rows).reshape(shape)
    real, imaginary = (torch.tensor(half) for half in np.split(rows, 2, axis=1))
    return torch.stack([real, imaginary], dim=-1).reshape(shape)


@pytest.mark.parametrize("score", ["distmult", "complex", "transe"])
def test_scores_are_those_of_pykeen(score: str) -> None:
    from pykeen import models
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.triples import CoreTriplesFactory

    triples = families()
    trainer = EmbeddingTrainer(triples, small_options(score=score, reciprocal=False))
    trainer.run_epoch()
    ours = trainer.embeddings
    parts = [triples.train, triples.valid, triples.test]
    counts = {"num_entities": triples.num_entities, "num_relations": triples.num_relations}
    train, valid, test = (
        CoreTriplesFactory.create(torch.tensor(part.astype(np.int64)), **counts) for part in parts
    )
    dim, more = (ours.dim // 2, {}) if score == "complex" else (ours.dim, {})
    if score == "transe":
        more = {"scoring_fct_norm": 2}
    kind = {"distmult": models.DistMult, "complex": models.ComplEx, "transe": models.TransE}[score]
    model = kind(triples_factory=train, embedding_dim=dim, random_seed=0, **more)
    for rows, representation in (
        (ours.entities, model.entity_representations[0]),
        (ours.relations, model.relation_representations[0]),
    ):
        (parameter,) = representation.parameters()
        parameter.data = parameter_of(rows.copy(), parameter.shape, is_complex=score == "complex")
    model.eval()
    theirs = RankBasedEvaluator(filtered=True).evaluate(
        model,
        test.mapped_triples,
        additional_filter_triples=[train.mapped_triples, valid.mapped_triples],
        batch_size=64,
        use_tqdm=False,
    )
    known = KnownTriples.of(parts, triples.num_relations)
    for ties, name in (("mean", "realistic"), ("optimistic", "optimistic"), ("pessimistic", "pessimistic")):
        found = RankScores.of(rank_triples(ours, triples.test, known, ties=ties))
        wanted = theirs.get_metric(f"both.{name}.inverse_harmonic_mean_rank")
        assert found.mrr == pytest.approx(wanted, abs=1e-6)
        for k, share in found.hits.items():
            assert share == pytest.approx(theirs.get_metric(f"both.{name}.hits_at_{k}"), abs=1e-6)

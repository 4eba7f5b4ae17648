"""Gradients by hand against torch's autograd, in fp64."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.embedding.steps.batch import Batch, ChunkWork, LossTerms
from siafu.embedding.steps.losses import LOSSES
from siafu.embedding.steps.scores import SCORES
from tests.embedding import references

_DIM, _NEGATIVES, _CHUNK, _COUNT = 6, 5, 4, 10  # chunks of 4, 4 and 2
_ENTITIES, _RELATIONS = 17, 3


class Case:
    """A batch of random rows in fp64, run by our code and by autograd."""

    def __init__(self, terms: LossTerms, *, reciprocal: bool = False, dtype: Any = np.float64) -> None:
        rng = np.random.default_rng(0)
        width = terms.score.relation_width(_DIM)
        self.terms, self.reciprocal = terms, reciprocal
        self.entities = rng.standard_normal((_ENTITIES, _DIM)).astype(dtype)
        self.relations = rng.standard_normal((2 * _RELATIONS, width)).astype(dtype)
        self.triples = rng.integers(0, (_ENTITIES, _RELATIONS, _ENTITIES), (_COUNT, 3))
        self.negatives = rng.integers(0, _ENTITIES, (2, 3, _NEGATIVES))
        self.filtered: list[list[NDArray[np.int64]]] | None = None

    def ours(self) -> tuple[float, NDArray[Any], NDArray[Any]]:
        terms, dtype = self.terms, self.entities.dtype
        batch = Batch(terms, _COUNT, _CHUNK, _NEGATIVES, _DIM, dtype, reciprocal=self.reciprocal)
        heads, relations, tails = self.triples.T
        batch.take(heads, relations, tails, self.negatives, _RELATIONS)
        batch.rows[:] = self.entities[batch.ids]
        batch.relation_rows[:] = self.relations[batch.relations]
        work = ChunkWork(terms, _CHUNK, _NEGATIVES, _DIM, dtype)
        total = sum(
            batch.run_chunk(chunk, work, None if self.filtered is None else self.filtered[chunk])
            for chunk in range(batch.chunks)
        )
        entities, relations = np.zeros_like(self.entities), np.zeros_like(self.relations)
        np.add.at(entities, batch.ids, batch.gradients)
        np.add.at(relations, batch.relations, batch.relation_gradients)
        return total, entities, relations

    def reference(self) -> tuple[float, NDArray[Any], NDArray[Any]]:
        entities = torch.tensor(self.entities, requires_grad=True)
        relations = torch.tensor(self.relations, requires_grad=True)
        total = self._loss(entities, relations)
        total.backward()
        of_relations = torch.zeros_like(relations) if relations.grad is None else relations.grad
        assert entities.grad is not None
        return float(total), entities.grad.numpy(), of_relations.numpy()

    def _loss(self, entities: Tensor, relations: Tensor) -> Tensor:
        total = torch.zeros((), dtype=entities.dtype)
        for k in range(0, _COUNT, _CHUNK):
            for i, (h, r, t) in enumerate(self.triples[k : k + _CHUNK].tolist()):
                for side in (0, 1):
                    total = total + self._side(entities, relations, (h, r, t), side, k // _CHUNK, i)
                total = total + self._penalty(entities[h], entities[t], relations[r])
                if self.reciprocal:
                    total = total + self._penalty(relations[r + _RELATIONS])
        return total

    def _side(
        self,
        entities: Tensor,
        relations: Tensor,
        triple: tuple[int, int, int],
        side: int,
        chunk: int,
        row: int,
    ) -> Tensor:
        h, r, t = triple
        name, others = self.terms.score.name, self.negatives[side, chunk].tolist()
        if self.filtered is not None:
            true = {n for i, n in self.filtered[chunk][side].tolist() if i == row}
            others = [entity for n, entity in enumerate(others) if n not in true]
        x = entities[others]
        if side == 0:
            found = [references.score(name, entities[h], relations[r], each) for each in (entities[t], x)]
        elif self.reciprocal:
            turned = relations[r + _RELATIONS]
            found = [references.score(name, entities[t], turned, each) for each in (entities[h], x)]
        else:
            found = [references.score(name, each, relations[r], entities[t]) for each in (entities[h], x)]
        terms = self.terms
        return references.loss(
            terms.loss.name, found[0][None], found[1][None], terms.margin, terms.temperature
        )

    def _penalty(self, *rows: Tensor) -> Tensor:
        total = torch.zeros((), dtype=rows[0].dtype)
        for row in rows if self.terms.regularization else ():
            sizes = row.abs()
            if self.terms.score.is_complex and self.terms.power == 3:
                sizes = torch.linalg.vector_norm(torch.stack(row.chunk(2)), dim=0)
            total = total + self.terms.regularization * (sizes**self.terms.power).sum()
        return total


def agree(case: Case, tolerance: float = 1e-7) -> None:
    for ours, reference in zip(case.ours(), case.reference(), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("score", list(SCORES))
def test_gradients_are_those_of_autograd(score: str, loss: str, reciprocal: bool) -> None:
    agree(Case(LossTerms(SCORES[score], LOSSES[loss], margin=1.5), reciprocal=reciprocal))


@pytest.mark.parametrize("power", [2, 3])
@pytest.mark.parametrize("score", ["distmult", "complex"])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_a_penalty_on_the_rows_has_the_gradient_of_autograd(score: str, power: int, reciprocal: bool) -> None:
    terms = LossTerms(SCORES[score], LOSSES["softmax"], regularization=0.3, power=power)
    agree(Case(terms, reciprocal=reciprocal))


def test_hard_negatives_count_more_and_their_weights_have_no_gradient() -> None:
    agree(Case(LossTerms(SCORES["rotate"], LOSSES["logistic"], margin=2.0, temperature=0.7)))


@pytest.mark.parametrize("score", ["complex", "transe"])
def test_a_filtered_negative_does_not_count(score: str) -> None:
    case = Case(LossTerms(SCORES[score], LOSSES["softmax"]))
    case.filtered = [[np.array([[0, 1], [1, 4]]), np.array([[0, 0]])] for _ in range(3)]
    agree(case)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_single_precision_is_close(loss: str) -> None:
    terms = LossTerms(SCORES["complex"], LOSSES[loss], margin=1.0)
    single, double = Case(terms, dtype=np.float32), Case(terms)
    for found, wanted in zip(single.ours(), double.reference(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("score", ["transe", "transe-l1", "rotate"])
def test_no_distance_has_no_gradient_and_no_nan(score: str) -> None:
    case = Case(LossTerms(SCORES[score], LOSSES["softmax"]))
    case.entities[:], case.relations[:] = 1.0, 0.0
    total, entities, relations = case.ours()
    assert np.isfinite(total)
    assert np.isfinite(entities).all()
    assert np.isfinite(relations).all()

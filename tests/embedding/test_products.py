"""Products of bfloat16 score nearly as those of float32 do, and teach as much."""

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.embedding.steps.float_bits import as_kind, widened
from siafu.embedding.steps.likeness import BriefDotProduct, _round_rows
from tests.embedding.knowledge import SMALL, families


@pytest.mark.parametrize("dim", [32, 40])
def test_scores_and_gradients_differ_by_no_more_than_the_rounding(dim: int) -> None:
    random = np.random.default_rng(0)
    q, x, g = (random.standard_normal(shape).astype(np.float32) for shape in ((30, dim), (20, dim), (30, 20)))
    likeness = BriefDotProduct()
    scores, dq, dx = np.empty((30, 20), likeness.matrix_type(q.dtype)), np.empty_like(q), np.empty_like(x)
    kept = likeness.matrix(q, x, scores)
    likeness.matrix_back(q, x, scores, as_kind(g, scores.dtype), dq, dx, kept)
    for brief, right in ((widened(scores), q @ x.T), (dq, g @ x), (dx, g.T @ q)):
        error = np.linalg.norm(brief - right) / np.linalg.norm(right)
        assert 0 < error < 2**-7


def test_rows_are_rounded_as_pytorch_rounds_them() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32)
    # In the middle of two: to the even one, up or down. And what has no neighbour.
    rows.view(np.uint32)[0, :4] = 0x3F808000, 0x3F818000, 0x7F800000, 0x7F7FFFFF
    found = np.empty(rows.shape, np.uint16)
    _round_rows(rows, found)
    assert np.array_equal(found, torch.from_numpy(rows).bfloat16().view(torch.int16).numpy().view(np.uint16))


def test_products_of_bf16_learn_as_fp32_does() -> None:
    options = {**SMALL, "score": "complex", "epochs": 12, "exact": True}
    fp32, bf16 = (siafu.embed(families(), products=each, **options).summary() for each in ("fp32", "bf16"))
    assert abs(fp32["test_mrr"] - bf16["test_mrr"]) < 0.05
    assert bf16["test_mrr"] > 0.4


def test_exact_runs_have_the_same_bits_again() -> None:
    runs = [siafu.embed(families(), **SMALL, products="bf16", exact=True) for _ in range(2)]
    assert np.array_equal(runs[0].embeddings.entities, runs[1].embeddings.entities)


def test_mixed_precision_is_products_of_bf16() -> None:
    runs = [
        siafu.embed(families(), **SMALL, exact=True, **each)
        for each in ({"precision": "mixed"}, {"products": "bf16"}, {})
    ]
    mixed, brief, fp32 = (run.embeddings.entities for run in runs)
    assert np.array_equal(mixed, brief)
    assert not np.array_equal(mixed, fp32)


@pytest.mark.parametrize("asked", [{"products": "bf16"}, {"precision": "mixed"}], ids=["products", "mixed"])
def test_a_distance_of_products_of_bf16_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="transe is a distance"):
        siafu.embed(families(), score="transe", **asked)

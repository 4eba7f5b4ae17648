from typing import Any

import numpy as np
import pytest
import torch

from siafu.embedding.steps.float_bits import BRIEF, as_kind, widened
from siafu.embedding.steps.losses import FILTERED, LOGISTIC, LOSSES, SOFTMAX, RankingLoss


def test_scores_far_apart_neither_overflow_nor_lose_the_loss() -> None:
    positives, negatives = np.array([-500.0, 500.0], np.float32), np.array([[500.0], [-500.0]], np.float32)
    gradients = np.empty(2, np.float32)
    total = SOFTMAX(positives, negatives, 0.0, 0.0, gradients)
    assert abs(total - 1000) < 1e-3
    np.testing.assert_allclose(gradients, [-1, 0], atol=1e-6)
    np.testing.assert_allclose(negatives, [[1], [0]], atol=1e-6)


def test_single_precision_has_six_digits() -> None:
    rng = np.random.default_rng(0)
    positives = rng.normal(0, 5, 200).astype(np.float32)
    negatives = rng.normal(0, 5, (200, 333)).astype(np.float32)
    expected = torch.softmax(torch.tensor(np.column_stack([positives, negatives]), dtype=torch.float64), 1)
    gradients = np.empty(200, np.float32)
    SOFTMAX(positives, negatives, 0.0, 0.0, gradients)
    np.testing.assert_allclose(negatives, expected[:, 1:], rtol=2e-6, atol=1e-12)
    np.testing.assert_allclose(gradients, expected[:, 0] - 1, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BRIEF])
def test_a_score_that_is_no_number_makes_a_loss_that_is_none(dtype: np.dtype[Any]) -> None:
    for loss in (SOFTMAX, LOGISTIC):
        positives, negatives = np.zeros(3, np.float32), np.zeros((3, 9), np.float32)
        negatives[1, 4] = np.nan
        assert not np.isfinite(loss(positives, as_kind(negatives, dtype), 0.0, 0.0, np.empty(3, np.float32)))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_scores_of_bfloat16_make_the_gradients_of_the_same_scores_in_float32(loss: RankingLoss) -> None:
    rng = np.random.default_rng(0)
    positives = rng.normal(0, 5, 20).astype(np.float32)
    brief = as_kind(rng.normal(0, 5, (20, 75)).astype(np.float32), BRIEF)
    brief[3, 5:8] = as_kind(np.array([FILTERED], np.float32), BRIEF)
    brief[4] = as_kind(np.full(1, -40, np.float32), BRIEF)  # the highest is below 0
    wide = widened(brief)
    gradients, right = np.empty((2, 20), np.float32)
    temperature = 0.5 if loss is LOGISTIC else 0.0
    total = loss(positives, brief, 1.0, temperature, gradients)
    assert total == pytest.approx(loss(positives, wide, 1.0, temperature, right), rel=1e-5)
    np.testing.assert_allclose(gradients, right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(widened(brief), wide, rtol=2**-8, atol=1e-30)
    assert (widened(brief)[3, 5:8] < 1e-30).all()

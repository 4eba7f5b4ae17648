import numpy as np
import torch

from siafu.embedding.steps.losses import LOGISTIC, SOFTMAX


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


def test_a_score_that_is_no_number_makes_a_loss_that_is_none() -> None:
    for loss in (SOFTMAX, LOGISTIC):
        positives, negatives = np.zeros(3, np.float32), np.zeros((3, 9), np.float32)
        negatives[1, 4] = np.nan
        assert not np.isfinite(loss(positives, negatives, 0.0, 0.0, np.empty(3, np.float32)))

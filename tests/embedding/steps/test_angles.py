"""RotatE's sines and cosines, and its distances of any number of queries."""

import numpy as np
import pytest

from siafu.embedding.steps.likeness import ModulusLikeness
from siafu.embedding.steps.queries import rotation


@pytest.mark.parametrize("most", [1, 10, 1000])
def test_angles_turn_by_their_sine_and_cosine(most: int) -> None:
    angles = np.random.default_rng(0).uniform(-most, most, (50, 20)).astype(np.float32)
    ones = np.hstack([np.ones((50, 20)), np.zeros((50, 20))]).astype(np.float32)
    turned = np.empty_like(ones)
    rotation(ones, angles, False, turned)
    exact = angles.astype(np.float64)
    assert np.abs(turned - np.hstack([np.cos(exact), np.sin(exact)])).max() < 2e-7


def test_an_angle_that_is_no_number_stays_none() -> None:
    turned = np.empty((1, 2), np.float32)
    rotation(np.ones((1, 2), np.float32), np.full((1, 1), np.nan, np.float32), False, turned)
    assert np.isnan(turned).all()


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_gradients_of_all_pairs_are_those_of_one_after_the_other(queries: int) -> None:
    rng = np.random.default_rng(0)
    q, x, g = (
        rng.standard_normal((queries, 6)),
        rng.standard_normal((4, 6)),
        rng.standard_normal((queries, 4)),
    )
    x[0] = q[0]  # at distance 0 there is no direction to go
    likeness, found = ModulusLikeness(), np.empty((queries, 4))
    dq, dx, right_q, right_x = np.empty_like(q), np.empty_like(x), np.zeros_like(q), np.zeros_like(x)
    kept = likeness.matrix(q, x, found)
    likeness.matrix_back(q, x, found, g, dq, dx, kept)
    for i in range(queries):
        for j in range(4):
            one, other = slice(i, i + 1), slice(j, j + 1)
            likeness.pairs_back(q[one], x[other], found[i, other], g[i, other], right_q[one], right_x[other])
    assert np.allclose(dq, right_q)
    assert np.allclose(dx, right_x)

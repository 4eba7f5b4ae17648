import numpy as np
import pytest

from siafu.embedding.embeddings import first_entities
from siafu.embedding.steps.scores import ROTATE


def first_distance(dim: int) -> float:
    """The mean distance of two entities before any training."""
    rows = first_entities(ROTATE, 0, 400, dim, seed=0)
    out = np.empty(200, np.float32)
    ROTATE.likeness.pairs(rows[:200], rows[200:], out)
    return -float(out.mean())


def test_rotates_entities_begin_as_far_apart_whatever_their_width() -> None:
    assert first_distance(1000) == pytest.approx(first_distance(100), rel=0.05)


def test_rotates_first_numbers_are_drawn_as_its_paper_draws_them() -> None:
    largest = np.abs(first_entities(ROTATE, 0, 400, 2000, seed=0)).max()
    assert largest == pytest.approx((9 + 2) / 1000, rel=0.01)

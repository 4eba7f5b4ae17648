import numpy as np
import pytest

from siafu.embedding.steps.dropout import drop


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_mean_stays(share: float) -> None:
    rows = np.ones((400, 101), np.float32)
    drop(rows, share, 7)
    assert np.unique(rows).tolist() == [0, np.float32(1 / (1 - share))]
    assert (rows == 0).mean() == pytest.approx(share, abs=0.01)
    assert (rows == 0).mean(axis=0) == pytest.approx(share, abs=0.12)  # of every column
    assert (rows == 0).mean(axis=1) == pytest.approx(share, abs=0.25)  # of every row


def test_a_key_decides_what_is_dropped() -> None:
    found = [np.ones((20, 10)) for _ in range(3)]
    for rows, key in zip(found, (1, 1, 2), strict=True):
        drop(rows, 0.5, key)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_nothing_is_dropped_by_default() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 10))
    kept = rows.copy()
    drop(rows, 0.0, 3)
    assert np.array_equal(rows, kept)

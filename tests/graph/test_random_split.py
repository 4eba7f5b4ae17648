"""Splits that are drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.graph.random_split import RandomSplit


@given(
    st.lists(st.integers(-1, 3), min_size=20, max_size=200),
    st.integers(0, 5),
    st.booleans(),
)
def test_shares_are_met_and_unlabelled_vertices_are_in_no_part(
    labels: list[int], seed: int, stratified: bool
) -> None:
    y = np.array([0] * 5 + labels)
    codes = RandomSplit((0.5, 0.3, 0.2), stratified).draw(y, seed)
    assert not codes[y < 0].any()
    assert codes[y >= 0].all()
    for group in [np.flatnonzero(y == k) for k in range(4)] if stratified else [np.flatnonzero(y >= 0)]:
        counts = np.bincount(codes[group], minlength=4)[1:]
        assert (np.abs(counts - np.array([0.5, 0.3, 0.2]) * len(group)) <= 1).all()


def test_the_seed_decides() -> None:
    y, split = np.zeros(100, np.int64), RandomSplit((0.6, 0.2, 0.2))
    assert (split.draw(y, 1) == split.draw(y, 1)).all()
    assert (split.draw(y, 1) != split.draw(y, 2)).any()


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_labels_drawn_with_the_same_seed_are_in_every_part(seed: int) -> None:
    y = np.zeros(1000, np.int64)
    y[np.random.default_rng(seed).permutation(1000)[:300]] = 1
    codes = RandomSplit((0.6, 0.2, 0.2)).draw(y, seed)
    shares = [y[codes == part].mean() for part in (1, 2, 3)]
    assert all(0.2 < share < 0.4 for share in shares)  # 0.3, and three deviations of 200 draws


def test_text_is_read_in_percent() -> None:
    assert RandomSplit.parsed("stratified:50/25/12.5") == RandomSplit((0.5, 0.25, 0.125), stratified=True)
    assert RandomSplit.parsed("scaffold") is None


@pytest.mark.parametrize(
    "text",
    [
        "random:60/20",
        "random",
        "random:60/50/20",
        "random:0/50/50",
        "random:60/-1/20",
        "random:a/b/c",
        "random:nan/0/0",
    ],
)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="split"):
        RandomSplit.parsed(text)

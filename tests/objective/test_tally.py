"""Tallies travel as numbers, and those of parts add up to those of the whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from siafu.objective.objective import Objective
from siafu.objective.tally import Tally, decode, encode
from siafu.objective.vertex_classes import VertexClasses
from siafu.objective.vertex_labels import VertexLabels

_TALLIES = st.builds(
    lambda rows, loss, counts: Tally(rows, loss, float(rows), counts),
    st.integers(1, 9),
    st.floats(0, 9),
    st.tuples(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)),
)


@given(st.dictionaries(st.sampled_from(["train", "val", "test"]), _TALLIES))
def test_what_was_encoded_is_decoded(tallies: dict[str, Tally]) -> None:
    assert decode(encode(tallies, 3)) == tallies


@given(_TALLIES, _TALLIES)
def test_encoded_tallies_add_up_place_by_place(one: Tally, other: Tally) -> None:
    summed = tuple(map(sum, zip(encode({"val": one}, 3), encode({"val": other}, 3), strict=True)))
    assert decode(summed) == {"val": one + other}


def test_the_first_number_is_the_loss_of_all_splits() -> None:
    tallies = {"train": Tally(1, 2.0, 1, (1.0,)), "test": Tally(1, 0.5, 1, (1.0,))}
    assert encode(tallies, 1)[0] == 2.5


@pytest.mark.parametrize(
    ("objective", "y"),
    [(VertexClasses(), torch.arange(7) % 3), (VertexLabels(), torch.arange(21).reshape(7, 3) % 2)],
)
def test_the_tallies_of_parts_add_up_to_that_of_the_whole(objective: Objective, y: torch.Tensor) -> None:
    out = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = objective.tally(out, y)
    parts = (
        objective.tally(out[:4], y[:4]) + objective.tally(out[4:4], y[4:4]) + objective.tally(out[4:], y[4:])
    )
    assert parts.loss_sum == pytest.approx(whole.loss_sum, rel=1e-12)
    assert (parts.rows, parts.loss_terms, parts.counts) == (whole.rows, whole.loss_terms, whole.counts)

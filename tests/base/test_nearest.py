"""What a mistyped name was probably meant to be."""

import pytest

from siafu.base.choices import MODEL_NAMES
from siafu.base.nearest import choose, nearest


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gnc", "gcn"),
        ("agt", "gat"),
        ("gni", "gin"),
        ("gatv", "gatv2"),
        ("sgae", "sage"),
        ("transfomer", "transformer"),
    ],
)
def test_a_mistyped_model_is_the_one_with_its_letters(typed: str, meant: str) -> None:
    assert nearest(typed, MODEL_NAMES) == meant
    assert nearest(typed, reversed(MODEL_NAMES)) == meant


def test_nothing_is_near_a_word_of_its_own() -> None:
    assert nearest("convolution", ("gat", "gin")) is None
    assert nearest("gat", ()) is None


def test_a_refusal_ends_with_all_names_and_the_nearest_if_there_is_one() -> None:
    assert choose("pip", ("sync", "pipe")) == "did you mean pipe? There are sync, pipe"
    assert choose("fast", ("sync", "pipe")) == "choose one of sync, pipe"

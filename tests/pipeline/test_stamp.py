"""Fences: which events are void, by their stamps."""

import pytest

from siafu.pipeline.events import Begin, Event
from siafu.pipeline.ids import RUN, Address, Incarnation, Life, ServerId
from siafu.pipeline.stamp import Fences, Stamp
from tests.pipeline.small import START

ME, OTHER = Address("graph", ServerId(0)), Address("weight", ServerId(0))


def begun(incarnation: int = 1, life: int = 2) -> Fences:
    """Of a server in its second life, in the second incarnation; the weight server is in its third life."""
    fences = Fences(ME, Life(life))
    fences.begin(Incarnation(incarnation), [(OTHER, Life(3))])
    return fences


@pytest.mark.parametrize(
    ("stamp", "void"),
    [
        (Stamp(Incarnation(1), OTHER, Life(3), Life(2)), False),
        (Stamp(Incarnation(1), RUN, Life(1), Life(2)), False),
        (Stamp(Incarnation(0), OTHER, Life(3), Life(2)), True),
        (Stamp(Incarnation(2), OTHER, Life(3), Life(2)), True),
        (Stamp(Incarnation(1), OTHER, Life(2), Life(2)), True),
        (Stamp(Incarnation(1), OTHER, Life(4), Life(2)), False),
        (Stamp(Incarnation(1), OTHER, Life(3), Life(1)), True),
        (Stamp(Incarnation(1), OTHER, Life(3), Life(3)), True),
    ],
)
def test_what_is_of_another_incarnation_or_from_or_for_an_earlier_life_is_void(
    stamp: Stamp, void: bool
) -> None:
    assert begun().is_void(stamp, Event()) == void


@pytest.mark.parametrize(("incarnation", "void"), [(0, True), (1, True), (2, False)])
def test_a_beginning_counts_if_it_is_of_a_later_incarnation(incarnation: int, void: bool) -> None:
    stamp = Stamp(Incarnation(incarnation), RUN, Life(1), Life(2))
    assert begun().is_void(stamp, Begin(Incarnation(incarnation), START, True)) == void


def test_its_own_stamp_is_never_void_until_it_begins_again() -> None:
    fences = begun()
    own = fences.stamp(ME)
    assert not fences.is_void(own, Event())
    fences.begin(Incarnation(2), [])
    assert fences.is_void(own, Event())


def test_letters_are_stamped_for_the_life_that_is_known() -> None:
    fences = begun()
    assert fences.stamp(OTHER) == Stamp(Incarnation(1), ME, Life(2), Life(3))
    assert not fences.raise_to(OTHER, Life(3))
    assert fences.raise_to(OTHER, Life(4))
    assert fences.stamp(OTHER).to_life == 4
    assert fences.lives == ((OTHER, Life(4)),)

"""Sums of gradients: the order they are added in, and what is held meanwhile."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from siafu.weights.sums import ArrivalOrder, GradientSum, IntervalOrder

# 1e8 + 1 is 1e8 in float32: every order of these has a sum of its own.
TELLING = [1e8, 1.0, -1e8, 3.0]

either = pytest.mark.parametrize("kind", [ArrivalOrder, IntervalOrder])


def one(value: float) -> dict[str, Tensor]:
    return {"w": torch.tensor([value], dtype=torch.float32)}


def in_turn(values: list[float]) -> float:
    total = torch.tensor([values[0]])
    for value in values[1:]:
        total = total + torch.tensor([value])
    return total.item()


def test_in_interval_order_every_order_of_arrival_has_the_same_bits() -> None:
    for arrival in itertools.permutations(range(4)):
        sums = IntervalOrder()
        for interval in arrival:
            sums.add(0, 0, interval, one(TELLING[interval]))
        assert sums.take()["w"].item() == in_turn(TELLING)


def test_in_arrival_order_what_comes_is_added_at_once() -> None:
    for arrival in itertools.permutations(range(4)):
        sums = ArrivalOrder()
        for interval in arrival:
            sums.add(0, 0, interval, one(TELLING[interval]))
        assert sums.num_bytes == 4
        assert sums.take()["w"].item() == in_turn([TELLING[interval] for interval in arrival])


@given(order=st.permutations([(e, p, i) for e in (3, 4) for p in (0, 1) for i in range(4)]), data=st.data())
def test_phases_and_epochs_may_mix_and_the_bits_stay(
    order: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    gradients = {
        key: {name: torch.randn(5, generator=random) for name in (f"w{key[1]}", "tied")}
        for key in sorted(order)
    }
    first, second = IntervalOrder(), IntervalOrder()
    for key in sorted(order):
        first.add(*key, gradients[key])
    for key in order:
        second.add(*key, gradients[key])
    expected, found = first.take(), second.take()
    assert expected.keys() == found.keys() == {"w0", "w1", "tied"}
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_contribution_is_held_back_until_its_turn_and_no_longer() -> None:
    sums = IntervalOrder()
    sums.add(0, 0, 2, one(3))
    sums.add(0, 0, 1, one(2))
    assert sums.held_back == 2
    assert sums.num_bytes == 8
    sums.add(0, 0, 0, one(1))
    assert sums.held_back == 0
    assert sums.num_bytes == 4


def test_phases_do_not_wait_for_each_other() -> None:
    sums = IntervalOrder()
    sums.add(0, 1, 0, one(1))
    sums.add(0, 0, 1, one(1))
    assert sums.held_back == 1


def test_an_empty_contribution_lets_the_next_have_its_turn() -> None:
    sums = IntervalOrder()
    sums.add(0, 0, 1, one(2))
    sums.add(0, 0, 0, {})
    assert sums.held_back == 0
    assert sums.take()["w"].item() == 2


def test_intervals_that_never_came_leave_the_order_of_the_others() -> None:
    for arrival in itertools.permutations((1, 2, 4)):
        sums = IntervalOrder()
        for interval in arrival:
            sums.add(0, 0, interval, one({1: 1e8, 2: 1.0, 4: -1e8}[interval]))
        assert sums.take()["w"].item() == in_turn([1e8, 1.0, -1e8])


@either
def test_a_tied_weight_gets_the_gradients_of_all_its_phases(kind: type[GradientSum]) -> None:
    sums = kind()
    sums.add(0, 2, 0, {"tied": torch.tensor([1.0]), "own": torch.tensor([5.0])})
    sums.add(0, 1, 0, {"tied": torch.tensor([2.0])})
    assert {name: tensor.item() for name, tensor in sums.take().items()} == {"tied": 3.0, "own": 5.0}


@either
def test_what_was_taken_is_gone_and_stays_as_it_was(kind: type[GradientSum]) -> None:
    sums = kind()
    sums.add(0, 0, 0, one(1))
    taken = sums.take()
    sums.add(1, 0, 0, one(10))
    sums.add(1, 0, 1, one(10))
    assert taken["w"].item() == 1
    assert sums.take()["w"].item() == 20
    assert sums.take() == {}
    assert sums.num_bytes == 0


@either
def test_the_gradients_given_are_not_changed(kind: type[GradientSum]) -> None:
    sums, given = kind(), [one(1), one(2), one(3)]
    for interval in (2, 0, 1):
        sums.add(0, 0, interval, given[interval])
    sums.take()["w"].zero_()
    assert [gradient["w"].item() for gradient in given] == [1, 2, 3]

"""WeightStore: versions that never change, and updates as the optimizer makes them."""

import pytest
import torch

from siafu.weights.optimizer import Settings
from siafu.weights.store import MissingVersion, WeightStore

FIRST = {name: torch.arange(3.0) + k for k, name in enumerate(("here", "also", "there"))}
FIXED = {"eps": torch.tensor([0.5])}
HOME = ("here", "also")


@pytest.fixture
def store() -> WeightStore:
    made = WeightStore(HOME, FIXED, Settings("sgd", lr=0.5))
    made.restore(7, FIRST, {})
    return made


def test_a_version_has_all_weights_and_those_that_are_not_trained(store: WeightStore) -> None:
    assert set(store.weights(7)) == {"here", "also", "there", "eps"}


def test_an_update_moves_against_the_sum_of_the_gradients(store: WeightStore) -> None:
    for _ in range(3):
        store.accumulate(8, {"here": torch.ones(3)})
    store.update(8)
    assert torch.equal(store.weights(8)["here"], FIRST["here"] - 1.5)
    assert store.gradients_applied == 3


def test_an_update_leaves_the_version_before_as_it_was(store: WeightStore) -> None:
    before = store.weights(7)["here"].clone()
    store.accumulate(8, {"here": torch.ones(3)})
    store.update(8)
    assert torch.equal(store.weights(7)["here"], before)


def test_the_given_gradients_are_not_changed(store: WeightStore) -> None:
    given = torch.ones(3)
    store.accumulate(8, {"here": given})
    store.accumulate(8, {"here": given})
    assert torch.equal(given, torch.ones(3))


def test_a_server_makes_only_its_own_part(store: WeightStore) -> None:
    store.accumulate(8, {"here": torch.ones(3)})
    store.update(8)
    assert set(store.part(8)) == set(HOME)
    assert "there" not in store.weights(8)


def test_the_rest_of_a_version_is_kept_as_it_comes_without_a_copy(store: WeightStore) -> None:
    made = torch.zeros(3)
    store.keep(8, {"there": made})
    store.update(8)
    assert set(store.weights(8)) == {"here", "also", "there", "eps"}
    assert store.weights(8)["there"] is made


def test_what_was_given_out_does_not_change_when_more_of_a_version_comes(store: WeightStore) -> None:
    store.update(8)
    given_out = store.weights(8)
    store.keep(8, {"there": torch.zeros(3)})
    assert "there" not in given_out


def test_a_version_that_was_freed_is_refused_by_name(store: WeightStore) -> None:
    store.free(7)
    with pytest.raises(MissingVersion, match=r"version 7 of the weights is not held here \(held: none\)"):
        store.weights(7)


def test_the_state_of_a_store_starts_another_in_the_same_place() -> None:
    gradient = {"here": torch.tensor([1.0, -2.0, 0.5]), "also": torch.ones(3)}
    one, other = (WeightStore(HOME, FIXED, Settings("adam", lr=0.1)) for _ in range(2))
    one.restore(0, FIRST, {})
    one.accumulate(1, gradient)
    one.update(1)
    other.restore(1, one.part(1), one.state())
    for store in (one, other):
        store.accumulate(2, gradient)
        store.update(2)
    assert torch.equal(one.weights(2)["here"], other.weights(2)["here"])
    assert not torch.equal(one.weights(2)["here"], FIRST["here"])


def test_a_gradient_that_was_given_is_not_changed_by_those_that_are_added() -> None:
    store = WeightStore(["w"], {}, Settings("sgd", 1.0))
    store.restore(0, {"w": torch.zeros(2)}, {})
    given = torch.ones(2)
    for _ in range(3):
        store.accumulate(1, {"w": given})
    store.update(1)
    assert given.tolist() == [1.0, 1.0]
    assert store.weights(1)["w"].tolist() == [-3.0, -3.0]

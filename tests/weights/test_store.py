"""WeightStore: versions that never change, and updates as torch.optim makes them."""

import pytest
import torch

from siafu.weights.optimizer import Settings
from siafu.weights.store import MissingVersion, WeightStore

PHASES = {0: ("first",), 1: ("second", "third")}
FIRST = {name: torch.arange(3.0) + k for k, name in enumerate(("first", "second", "third"))}
FIXED = {"eps": torch.tensor([0.5])}


@pytest.fixture
def store() -> WeightStore:
    made = WeightStore(PHASES, FIXED, Settings("sgd", lr=0.5))
    made.restore(7, FIRST, {}, [0, 1])
    return made


def test_a_version_has_the_weights_of_all_phases_and_those_that_are_not_trained(store: WeightStore) -> None:
    assert set(store.weights(7)) == {"first", "second", "third", "eps"}


def test_an_update_moves_against_the_sum_of_the_gradients(store: WeightStore) -> None:
    for _ in range(3):
        store.accumulate(0, 8, {"first": torch.ones(3)})
    store.update(0, 8)
    assert torch.equal(store.part(0, 8)["first"], FIRST["first"] - 1.5)
    assert store.gradients_applied == 3


def test_an_update_leaves_the_version_before_as_it_was(store: WeightStore) -> None:
    before = store.part(1, 7)["second"].clone()
    store.accumulate(1, 8, {"second": torch.ones(3), "third": torch.ones(3)})
    store.update(1, 8)
    assert torch.equal(store.part(1, 7)["second"], before)


def test_the_given_gradients_are_not_changed(store: WeightStore) -> None:
    given = torch.ones(3)
    store.accumulate(0, 8, {"first": given})
    store.accumulate(0, 8, {"first": given})
    assert torch.equal(given, torch.ones(3))


def test_a_version_that_was_freed_is_refused_by_name(store: WeightStore) -> None:
    store.free(0, 7)
    with pytest.raises(MissingVersion, match="version 7 of phase 0's weights is not held here"):
        store.weights(7)


def test_the_most_versions_ever_held_are_counted(store: WeightStore) -> None:
    for version in (8, 9):
        store.accumulate(0, version, {"first": torch.ones(3)})
        store.update(0, version)
    store.free(0, 7)
    store.free(0, 8)
    assert store.versions_peak == 3


def test_weights_made_elsewhere_are_kept_without_a_copy(store: WeightStore) -> None:
    made = {"first": torch.zeros(3)}
    store.keep(0, 8, made)
    assert store.part(0, 8)["first"] is made["first"]


def test_the_state_of_a_store_starts_another_in_the_same_place() -> None:
    settings = Settings("adam", lr=0.1)
    one, other = (WeightStore(PHASES, FIXED, settings) for _ in range(2))
    one.restore(0, FIRST, {}, [0, 1])
    for version in (1, 2):
        one.accumulate(0, version, {"first": torch.tensor([1.0, -2.0, 0.5])})
        one.update(0, version)
    other.restore(1, {**FIRST, **one.part(0, 1)}, _after_one_step(settings), [0, 1])
    other.accumulate(0, 2, {"first": torch.tensor([1.0, -2.0, 0.5])})
    other.update(0, 2)
    assert torch.equal(other.part(0, 2)["first"], one.part(0, 2)["first"])


def _after_one_step(settings: Settings) -> dict[str, torch.Tensor]:
    store = WeightStore(PHASES, FIXED, settings)
    store.restore(0, FIRST, {}, [0, 1])
    store.accumulate(0, 1, {"first": torch.tensor([1.0, -2.0, 0.5])})
    store.update(0, 1)
    return store.state()

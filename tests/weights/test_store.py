"""The weight store: versions that do not change, gradients that count once, and what all of it takes."""

import itertools

import pytest
import torch
from torch import Tensor

from siafu.weights.optimizer import Optimizer, Settings
from siafu.weights.store import MissingVersion, WeightStore
from siafu.weights.sums import ArrivalOrder, GradientSum, IntervalOrder


def weights(value: float = 0.0) -> dict[str, Tensor]:
    return {"w": torch.full((2, 3), value), "b": torch.full((3,), value)}


def store_of(*versions: int, gradients: GradientSum | None = None) -> WeightStore:
    store = WeightStore(gradients or ArrivalOrder())
    for version in versions:
        store.put(version, weights(float(version)))
    return store


def test_each_version_is_what_was_put() -> None:
    store = store_of(4, 5)
    assert store.get(4)["w"][0, 0] == 4
    assert store.get(5)["b"][0] == 5
    assert store.versions == [4, 5]


def test_a_missing_version_is_named_beside_those_held() -> None:
    store = store_of(4, 5)
    store.free(4)
    with pytest.raises(MissingVersion, match=r"version 4 of the weights is not held here \(held: 5\)"):
        store.get(4)
    with pytest.raises(MissingVersion, match="version 4"):
        store.free(4)


def test_a_version_cannot_be_put_again() -> None:
    with pytest.raises(ValueError, match="version 1 has 'w' already"):
        store_of(1).put(1, {"w": torch.zeros(2, 3)})


def test_a_version_may_come_in_parts_and_what_was_read_before_stays() -> None:
    store = store_of()
    store.put(0, {"w": torch.zeros(2, 3)})
    read = store.get(0)
    store.put(0, {"b": torch.zeros(3)})
    assert set(read) == {"w"}
    assert set(store.get(0)) == {"w", "b"}
    assert store.versions_peak == 1


def test_weights_of_another_shape_or_dtype_are_refused() -> None:
    store = store_of(0)
    with pytest.raises(ValueError, match=r"'b' is torch.float32 \[3\], and torch.float32 \[4\] came"):
        store.put(1, {"b": torch.zeros(4)})
    with pytest.raises(ValueError, match="float64"):
        store.put(1, {"b": torch.zeros(3, dtype=torch.float64)})
    assert store.versions == [0]


def test_the_peak_counts_what_was_held_at_once() -> None:
    store = store_of(0, 1)
    store.free(0)
    store.put(2, weights())
    assert store.versions_peak == 2


def test_a_version_put_in_place_of_another_adds_nothing_to_the_peak() -> None:
    store = store_of(0)
    store.put(1, weights(), freeing=[0])
    assert store.versions == [1]
    assert store.versions_peak == 1


def test_bytes_held_are_those_of_versions_and_gradients() -> None:
    store = store_of(0, 1)
    assert store.bytes_held == 2 * 4 * (6 + 3)
    store.add(0, 0, 0, {"b": torch.ones(3)})
    assert store.bytes_held == 2 * 4 * (6 + 3) + 4 * 3
    store.take_gradients()
    store.free(0)
    assert store.bytes_held == 4 * (6 + 3)


def test_a_tensor_that_versions_share_is_counted_once() -> None:
    store = store_of(0)
    store.put(1, store.get(0))
    assert store.bytes_held == 4 * (6 + 3)


def test_a_gradient_that_comes_again_is_refused_and_counted() -> None:
    store = store_of(0)
    assert store.add(0, 1, 2, {"b": torch.ones(3)})
    assert not store.add(0, 1, 2, {"b": torch.ones(3)})
    assert store.duplicates == 1
    assert store.take_gradients()["b"].tolist() == [1, 1, 1]


def test_a_gradient_that_comes_again_after_the_update_is_refused_too() -> None:
    store = store_of(0)
    store.add(0, 1, 2, {"b": torch.ones(3)})
    store.take_gradients()
    assert not store.add(0, 1, 2, {"b": torch.ones(3)})
    assert store.take_gradients() == {}


def test_gradients_of_another_epoch_phase_or_interval_are_others() -> None:
    store = store_of(0)
    assert all(store.add(e, p, i, {"b": torch.ones(3)}) for e in (0, 1) for p in (0, 1) for i in (0, 1))
    assert store.take_gradients()["b"].tolist() == [8, 8, 8]


def test_a_store_that_begins_late_refuses_what_is_of_an_earlier_run() -> None:
    store = WeightStore(ArrivalOrder(), first_epoch=10)
    store.put(10, weights())
    assert not store.add(9, 0, 0, {"b": torch.ones(3)})
    assert store.add(10, 0, 0, {"b": torch.ones(3)})


def test_contributions_are_counted_until_they_are_applied_and_after() -> None:
    store = store_of(0)
    for interval in range(3):
        store.add(0, 0, interval, {})
    assert (store.gradients_pending, store.gradients_applied) == (3, 0)
    store.take_gradients()
    store.add(1, 0, 0, {})
    assert (store.gradients_pending, store.gradients_applied) == (1, 3)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        ({"v": torch.ones(3)}, "'v', which is not among the weights held here"),
        ({"w": torch.ones(2, 3), "b": torch.ones(1)}, r"'b' is torch.float32 \[3\]"),
    ],
    ids=["name", "shape"],
)
def test_a_gradient_that_does_not_fit_is_refused_whole_and_may_come_right_later(
    gradient: dict[str, Tensor], message: str
) -> None:
    store = store_of(0)
    with pytest.raises(ValueError, match=message):
        store.add(0, 0, 0, gradient)
    assert store.add(0, 0, 0, {"b": torch.ones(3)})
    assert store.take_gradients().keys() == {"b"}


def test_training_from_the_store_has_the_same_bits_whatever_the_order_of_arrival() -> None:
    begin = {"w": torch.randn(20, 7)}
    gradients = {(e, i): {"w": torch.randn(20, 7)} for e in range(5) for i in range(4)}

    def train(arrival: tuple[int, ...]) -> Tensor:
        store, optimizer = WeightStore(IntervalOrder()), Optimizer(Settings("adam", 0.01, {"w": 0.1}))
        store.put(0, begin)
        for epoch in range(5):
            for interval in arrival:
                store.add(epoch, 0, interval, gradients[epoch, interval])
            new = optimizer.step(store.get(epoch), store.take_gradients())
            store.put(epoch + 1, new, freeing=[epoch])
        assert store.versions_peak == 1
        assert store.gradients_applied == 20
        return store.get(5)["w"]

    first = train((0, 1, 2, 3))
    assert not torch.equal(first, begin["w"])
    assert all(torch.equal(train(arrival), first) for arrival in itertools.permutations(range(4)))

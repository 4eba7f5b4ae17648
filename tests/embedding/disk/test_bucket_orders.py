import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.embedding.disk.bucket_orders import ORDERS, beta_order, count_swaps


@pytest.mark.parametrize(
    ("partitions", "buffer", "swaps"), [(6, 3, 7), (16, 4, 42), (32, 8, 78), (64, 8, 308), (16, 2, 119)]
)
def test_beta_swaps_as_often_as_the_papers_formula_says(partitions: int, buffer: int, swaps: int) -> None:
    assert count_swaps(beta_order(partitions, buffer, np.random.default_rng(0))) == swaps


@given(st.sampled_from(sorted(ORDERS)), st.integers(2, 14), st.integers(2, 14), st.integers(0, 2**32 - 1))
def test_every_bucket_is_trained_once_while_both_its_partitions_are_there(
    name: str, partitions: int, buffer: int, seed: int
) -> None:
    buffer = min(buffer, partitions)
    states = ORDERS[name](partitions, buffer, np.random.default_rng(seed))
    trained = [bucket for state in states for bucket in state.buckets]
    assert sorted(trained) == [(i, j) for i in range(partitions) for j in range(partitions)]
    for state in states:
        assert len(set(state.resident)) == len(state.resident) <= buffer
        assert all({i, j} <= set(state.resident) for i, j in state.buckets)


def test_beta_needs_fewer_swaps_than_a_random_order() -> None:
    counts = {name: count_swaps(order(16, 4, np.random.default_rng(1))) for name, order in ORDERS.items()}
    assert counts["beta"] < counts["comet"] < counts["random"]


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_an_order_depends_on_its_random_numbers_alone(name: str) -> None:
    first, again, other = (ORDERS[name](9, 3, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other

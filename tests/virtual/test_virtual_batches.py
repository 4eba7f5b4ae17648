"""Mini-batches in virtual time, against times that can be worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.virtual.virtual_batches import ONE_BY_ONE, BatchLoad, BatchOverlap, epoch_seconds
from tests.virtual.virtual_cases import machine

NO_LATENCY = replace(machine(), latency_s=0.0, network_bytes_s=10.0)
FETCHED = BatchLoad(draw=1, fetched=40, gather=2, first=0, pulled=0, compute=3, last=0, weights=5)
PULLED = BatchLoad(draw=1, fetched=10, gather=2, first=1, pulled=20, compute=2, last=1, weights=0)


def test_one_by_one_everything_takes_its_turn() -> None:
    assert epoch_seconds(FETCHED, NO_LATENCY, ONE_BY_ONE, 3) == pytest.approx(3 * (1 + 4 + 2 + 3 + 1))
    assert epoch_seconds(PULLED, NO_LATENCY, ONE_BY_ONE, 3) == pytest.approx(
        3 * (1 + 1 + 2 + 1 + 2 + 2 + 2 + 1)
    )


def test_every_transfer_takes_the_latency_too() -> None:
    far = replace(NO_LATENCY, latency_s=0.5)
    assert epoch_seconds(FETCHED, far, ONE_BY_ONE, 3) == pytest.approx(3 * (11 + 2 * 0.5))


def test_batches_that_are_fetched_ahead_hide_the_shorter_of_cores_and_network() -> None:
    # The network takes 4 s of the features and 1 s of the weights, the cores 6 s: these never wait.
    ahead = BatchOverlap(ahead=2, staleness=1)
    assert epoch_seconds(FETCHED, NO_LATENCY, ahead, 100) == pytest.approx(100 * 6, rel=0.02)
    slow = replace(NO_LATENCY, network_bytes_s=5.0)
    assert epoch_seconds(FETCHED, slow, ahead, 100) == pytest.approx(100 * 10, rel=0.02)


def test_sums_on_their_way_are_hidden_by_weights_that_lack_updates() -> None:
    # Each batch waits for 4 s of sums and gradients in the middle of its computing. Only another batch can use them.
    fresh = epoch_seconds(PULLED, NO_LATENCY, BatchOverlap(ahead=2, staleness=0), 100)
    stale = epoch_seconds(PULLED, NO_LATENCY, BatchOverlap(ahead=2, staleness=3), 100)
    assert fresh >= 100 * (4 + 4)
    assert stale == pytest.approx(100 * (1 + 2 + 1 + 2 + 1), rel=0.05)


@given(
    st.tuples(*[st.integers(0, 9)] * 8),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 4),
    st.floats(0, 1),
)
def test_no_overlap_is_faster_than_its_resources_or_slower_than_none(
    amounts: tuple[int, ...], ahead: int, staleness: int, cores: int, latency: float
) -> None:
    load = BatchLoad(*map(float, amounts))
    here = replace(NO_LATENCY, cores=cores, latency_s=latency)
    found = epoch_seconds(load, here, BatchOverlap(ahead, staleness), 7)
    computing = 7 * (load.draw + load.gather + load.first + load.compute + load.last) / cores
    travelling = 7 * (load.fetched + 2 * load.pulled + 2 * load.weights) / here.network_bytes_s
    assert found >= max(computing, travelling) * (1 - 1e-9) - 1e-9
    assert found <= epoch_seconds(load, here, ONE_BY_ONE, 7) * (1 + 1e-9) + 1e-9

"""Faults on purpose."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.serverless.function.faults import FaultKind, FaultPlan

_SHARES = {
    "kill": 0.05,
    "hang": 0.05,
    "slow": 0.1,
    "error": 0.03,
    "duplicate": 0.05,
    "garbage": 0.02,
    "garble": 0.04,
}


@given(seed=st.integers(0, 2**63), number=st.integers(0, 2**40))
def test_the_same_seed_and_number_have_the_same_fault(seed: int, number: int) -> None:
    assert FaultPlan(seed, **_SHARES).fault(number) == FaultPlan(seed, **_SHARES).fault(number)


@given(seed=st.integers(0, 2**63), number=st.integers(0, 2**40))
def test_a_fault_strikes_within_the_window(seed: int, number: int) -> None:
    fault = FaultPlan(seed, kill=1.0, window=0.5).fault(number)
    assert fault is not None
    assert 0 <= fault.after <= 0.5


def test_each_kind_strikes_its_share() -> None:
    plan = FaultPlan(7, **_SHARES)
    struck = Counter(fault.kind for number in range(20_000) if (fault := plan.fault(number)))
    for kind in FaultKind:
        assert struck[kind] / 20_000 == pytest.approx(plan.share(kind), rel=0.2)


def test_another_seed_strikes_others() -> None:
    assert [FaultPlan(1, kill=0.5).fault(n) for n in range(64)] != [
        FaultPlan(2, kill=0.5).fault(n) for n in range(64)
    ]


def test_no_shares_are_no_faults() -> None:
    assert not any(FaultPlan(3).fault(number) for number in range(1000))


@pytest.mark.parametrize("shares", [{"kill": 0.7, "hang": 0.7}, {"slow": -0.1}])
def test_shares_that_cannot_be_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="together at most 1"):
        FaultPlan(0, **shares)

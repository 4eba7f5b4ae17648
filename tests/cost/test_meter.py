"""The meter and the prices."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.cost.meter import Meter
from siafu.cost.prices import LambdaPrices, lambda_prices, price_book

X86 = lambda_prices("us-east-1", "x86_64")
BILLS = st.lists(st.tuples(st.integers(0, 900_000), st.integers(128, 10_240)), max_size=20)


def metered(bills: list[tuple[int, int]]) -> Meter:
    meter = Meter(X86)
    for billed_ms, memory_mb in bills:
        meter.count_invocation(billed_ms, memory_mb)
    return meter


def test_a_million_seconds_of_one_gb_cost_what_the_price_list_says() -> None:
    meter = metered([(1_000_000, 1024)] * 1000)
    assert meter.gb_seconds == 1e6
    assert meter.usd == pytest.approx(16.6667 + 1000 / 1e6 * 0.20)


def test_the_papers_192_mb_for_100_ms() -> None:
    assert metered([(100, 192)]).gb_seconds == pytest.approx(0.1 * 192 / 1024)


def test_an_invocation_that_ran_for_nothing_still_is_a_request() -> None:
    assert metered([(0, 128)] * 5).usd == pytest.approx(5 * 0.20 / 1e6)


def test_what_was_refused_costs_nothing() -> None:
    meter = Meter(X86)
    meter.count_refusal()
    assert (meter.refused, meter.requests, meter.usd) == (1, 0, 0.0)


@given(BILLS)
def test_gb_seconds_are_the_exact_sum_in_any_order(bills: list[tuple[int, int]]) -> None:
    exact = sum((Fraction(ms, 1000) * Fraction(mb, 1024) for ms, mb in bills), Fraction())
    assert metered(bills).gb_seconds == metered(bills[::-1]).gb_seconds == float(exact)


@given(BILLS, BILLS)
def test_meters_of_two_servers_add_up(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    both, other = metered(first), metered(second)
    both.count_task("T1", 10, 2)
    other.count_task("T1", 1, 1)
    other.count_task("∇T1", 5, 6)
    both.add(other)
    assert both.gb_seconds == metered(first + second).gb_seconds
    assert both.requests == len(first) + len(second)
    assert both.summary()["kinds"] == {
        "T1": {"tasks": 2, "bytes_received": 11, "bytes_sent": 3},
        "∇T1": {"tasks": 1, "bytes_received": 5, "bytes_sent": 6},
    }


def test_adding_leaves_the_other_meter_as_it_was() -> None:
    mine, other = Meter(X86), Meter(X86)
    other.count_task("T1", 1, 1)
    mine.add(other)
    mine.count_task("T1", 1, 1)
    assert other.kinds["T1"].tasks == 1


def test_the_summary_says_whose_prices_and_of_when() -> None:
    summary = metered([(1000, 1024)]).summary()
    assert summary["billed_gb_seconds"] == 1.0
    assert summary["prices"]["as_of"] and summary["prices"]["source"]


@pytest.mark.parametrize(("billed_ms", "memory_mb"), [(-1, 128), (1, 0), (1, -128)])
def test_a_bill_that_cannot_be_is_not_counted(billed_ms: int, memory_mb: int) -> None:
    meter = Meter(X86)
    with pytest.raises(ValueError):
        meter.count_invocation(billed_ms, memory_mb)
    assert meter.requests == 0


def test_bytes_that_cannot_be_are_not_counted() -> None:
    with pytest.raises(ValueError):
        Meter(X86).count_task("T1", -1, 0)


def test_arm_is_cheaper_and_a_request_costs_the_same() -> None:
    arm = lambda_prices("us-east-1", "arm64")
    assert arm.usd_per_gb_second < X86.usd_per_gb_second
    assert arm.usd_per_million_requests == X86.usd_per_million_requests


def test_a_region_without_prices_is_named_with_those_that_have_them() -> None:
    with pytest.raises(BadInput, match=r"mars-1 arm64 \(known: us-east-1 x86_64") as caught:
        lambda_prices("mars-1", "arm64")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("price", [-1.0, float("nan")])
def test_a_price_below_nothing_is_refused(price: float) -> None:
    with pytest.raises(BadInput):
        LambdaPrices("here", "arm64", price, 0.2, "2026-08", "a test")


def test_every_price_says_where_it_comes_from() -> None:
    assert all(each.source and each.as_of for each in price_book().lambdas)

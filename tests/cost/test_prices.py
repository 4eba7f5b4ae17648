"""The price book: what is in it, how a file is laid over it, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.cost.instances import Billing
from siafu.cost.lambda_prices import Discount, LambdaPrices
from siafu.cost.prices import lambda_prices, price_book

BOOK = price_book()
ARM = lambda_prices("us-east-1", "arm64")


def file(tmp_path: Path, **parts: Any) -> Path:
    """A price file with these parts."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"format": "siafu prices", "version": 1, **parts}))
    return path


def refusal(tmp_path: Path, **parts: Any) -> str:
    """The one line that a price file is refused with."""
    with pytest.raises(BadInput) as caught:
        price_book(file(tmp_path, **parts))
    assert "\n" not in str(caught.value)
    assert "mine.json" in str(caught.value)
    return str(caught.value)


def test_every_price_has_a_date_and_every_specification_a_source() -> None:
    assert all(each.as_of for each in BOOK.instances.values())
    assert all(each.source for each in BOOK.processors.values())
    assert {"prices", "network", "memory", "billing", "lambda_tiers"} <= set(BOOK.sources)


def test_a_processors_bandwidth_is_what_its_maker_publishes() -> None:
    graviton = BOOK.processors["graviton3"]
    assert graviton.memory_bytes_per_thread * graviton.cores == pytest.approx(307.2e9)


def test_two_hardware_threads_share_a_cores_arithmetic() -> None:
    skylake = BOOK.processors["skylake-8124m"]
    assert skylake.flops_per_thread == pytest.approx(3.4e9 * 64 / 2)


def test_an_unknown_instance_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(BadInput, match=r"'c5\.3xlarge' \(the nearest known: c5\.2xlarge, ") as caught:
        BOOK.instance("c5.3xlarge")
    assert "\n" not in str(caught.value)


def test_a_rental_is_on_demand_unless_it_says_spot() -> None:
    assert BOOK.rental("c5.2xlarge").usd_h == BOOK.rental("c5.2xlarge:on-demand").usd_h == 0.34
    assert BOOK.rental("c5.2xlarge:spot").usd_h == 0.158
    assert str(BOOK.rental("c5.2xlarge:spot")) == "c5.2xlarge:spot"


@pytest.mark.parametrize(("text", "says"), [("c5.2xlarge:spit", "'spit'"), ("p2.xlarge:spot", "no spot")])
def test_a_rental_that_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        BOOK.rental(text)


def test_the_nearest_to_ones_own_machine_has_its_size_and_kind() -> None:
    assert BOOK.nearest(8, 16 * 2**30, "arm64").architecture == "arm64"
    assert BOOK.nearest(4, 32 * 2**30, "x86_64").name in ("r5.xlarge", "r7i.xlarge", "i4i.xlarge")
    assert BOOK.nearest(2, 24 * 2**30, "x86_64").accelerator is None


@given(st.integers(1, 500), st.integers(2**28, 2**42))
def test_some_instance_is_nearest_to_any_machine(vcpu: int, memory: int) -> None:
    assert BOOK.nearest(vcpu, memory, "x86_64").architecture == "x86_64"


@pytest.mark.parametrize(("seconds", "charged"), [(0, 60), (1, 60), (60, 60), (60.2, 61), (3600, 3600)])
def test_a_machine_is_charged_by_the_second_and_for_a_minute_at_least(seconds: float, charged: int) -> None:
    assert BOOK.billing.usd(3.6, seconds) == pytest.approx(charged * 0.001)


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_more_time_never_costs_less(one: float, other: float) -> None:
    billing = Billing(60, 1)
    assert billing.usd(0.34, min(one, other)) <= billing.usd(0.34, max(one, other))


def test_gb_seconds_beyond_a_volume_cost_the_lower_price() -> None:
    at_list_price = 7.5e9 * 0.0000133334
    assert ARM.usd(7.5e9, 0) == pytest.approx(at_list_price)
    assert ARM.usd(8.5e9, 0) == pytest.approx(at_list_price + 1e9 * 0.0000120001)


@given(st.floats(0, 1e11), st.floats(0, 1e11))
def test_a_month_costs_the_same_in_one_bill_or_in_two(first: float, second: float) -> None:
    apart = ARM.usd(first, 0) + ARM.usd(second, 0, before=first)
    assert ARM.usd(first + second, 0) == pytest.approx(apart, rel=1e-9, abs=1e-9)


def test_discounts_out_of_order_are_refused() -> None:
    with pytest.raises(BadInput, match="ascend"):
        LambdaPrices("here", "arm64", 1.0, 0.2, "2026-08", "a test", (Discount(5, 0.9), Discount(5, 0.8)))


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    mine = price_book(file(tmp_path, instances={"c5.2xlarge": {"on_demand_usd_h": 0.2}}))
    assert mine.instance("c5.2xlarge").on_demand_usd_h == 0.2
    assert mine.instance("c5.2xlarge").memory_gib == BOOK.instance("c5.2xlarge").memory_gib
    assert mine.instance("c5n.2xlarge") == BOOK.instance("c5n.2xlarge")
    assert "mine.json" in mine.name


def test_a_file_adds_machines_and_regions(tmp_path: Path) -> None:
    machine = {
        "processor": "graviton4",
        "vcpu": 64,
        "memory_gib": 512,
        "network_gbps": 30,
        "network_burst_gbps": 30,
        "on_demand_usd_h": 3.5,
        "as_of": "2026-11",
    }
    prices = {"region": "mars-1", "architecture": "arm64", "usd_per_gb_second": 1, "as_of": "2026-11"}
    mine = price_book(
        file(tmp_path, instances={"own.big": machine}, lambdas=[{**prices, "usd_per_million_requests": 2}])
    )
    assert mine.rental("own.big").usd_h == 3.5
    assert mine.lambda_prices("mars-1", "arm64").usd_per_gb_second == 1
    assert mine.lambda_prices("us-east-1", "x86_64") == lambda_prices("us-east-1", "x86_64")


def test_the_environment_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_PRICES", str(file(tmp_path, instances={"c5.2xlarge": {"on_demand_usd_h": 9}})))
    assert price_book().instance("c5.2xlarge").on_demand_usd_h == 9


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"instance": {}}, "unknown field instance: did you mean instances"),
        ({"instances": {"c5.2xlarge": {"on_demand": 1}}}, "did you mean on_demand_usd_h"),
        ({"instances": {"c5.2xlarge": {"on_demand_usd_h": "1"}}}, 'on_demand_usd_h is "1": give a number'),
        ({"instances": {"c5.2xlarge": {"on_demand_usd_h": -1}}}, "at least 0"),
        ({"instances": {"c5.2xlarge": {"on_demand_usd_h": 10**400}}}, "at least 0"),
        ({"instances": {"c5.2xlarge": {"on_demand_usd_h": float("inf")}}}, "at least 0"),
        ({"lambdas": [{"architecture": "arm64", "discounts": [[float("inf"), 1]]}]}, "a list of pairs"),
        ({"lambdas": [{"architecture": "arm64", "discounts": [[10**400, 1]]}]}, "a list of pairs"),
        ({"instances": {"c5.2xlarge": {"vcpu": 1.5}}}, "whole number"),
        ({"instances": {"c5.2xlarge": {"spot_low_usd_h": 5}}}, "spot prices"),
        ({"instances": {"c5.2xlarge": {"processor": "abacus"}}}, "abacus"),
        ({"instances": {"own.big": {"vcpu": 2}}}, "is missing"),
        ({"instances": []}, "by name"),
        ({"lambdas": [{"architecture": "vax"}]}, "x86_64, arm64"),
        ({"billing": {"increment_seconds": 0}}, "above 0"),
        ({"version": 7}, "version 7"),
        ({"format": "shopping list"}, "no price file"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, parts: dict[str, Any], says: str) -> None:
    assert says in refusal(tmp_path, **parts)


def test_a_file_that_is_not_there_or_not_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*a file of prices"):
        price_book(tmp_path / "none.json")
    for text in ("{", "[" * 20_000, "9" * 5000):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(BadInput, match="not JSON"):
            price_book(tmp_path / "bad.json")

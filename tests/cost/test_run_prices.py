"""What a run costs, and what it would have cost elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.cost import elsewhere, run_prices
from siafu.cost.elsewhere import Spent
from siafu.cost.prices import lambda_prices, price_book
from siafu.cost.run_prices import RunPrices

BOOK = price_book()
LIKE = (8, 16 * 2**30, "x86_64")
SKYLAKE = BOOK.processors["skylake-8124m"]
NONE_USED = {"invocations": 0, "billed_gb_seconds": 0.0}


def prices_of(instance: str | None, machines: int = 1, *, paid: bool = False) -> RunPrices:
    lambdas = lambda_prices("us-east-1", "x86_64") if paid else None
    return RunPrices.of(BOOK, instance, machines, like=LIKE, lambdas=lambdas)  # type: ignore[arg-type]


def test_a_bill_adds_machines_lambdas_and_requests() -> None:
    used = {"invocations": 3, "requests": 2_000_000, "billed_gb_seconds": 1e6}
    bill = prices_of("c5.2xlarge", 2, paid=True).bill(3600, used)
    assert bill["graph_servers_usd"] == pytest.approx(2 * 0.34)
    assert bill["lambda_compute_usd"] == pytest.approx(16.6667)
    assert bill["lambda_requests_usd"] == pytest.approx(0.40)
    assert bill["usd"] == pytest.approx(0.68 + 16.6667 + 0.40)
    assert bill["value"] == pytest.approx(1 / (3600 * bill["usd"]))


def test_lambdas_of_ones_own_machine_cost_nothing_more() -> None:
    used = {"invocations": 3, "requests": 2_000_000, "billed_gb_seconds": 1e6}
    assert prices_of("c5.2xlarge").bill(3600, used)["usd"] == pytest.approx(0.34)


def test_where_nobody_says_what_it_runs_on_the_nearest_type_is_assumed_and_said_so() -> None:
    prices = prices_of(None)
    bill = prices.bill(3600, NONE_USED)
    assert bill["assumed"] is True
    assert BOOK.instance(bill["instance"]).vcpu == 8
    assert "nobody said what it ran on" in run_prices.told(bill, "1.0 h")
    assert "nobody" not in run_prices.told(prices_of("c5.2xlarge").bill(3600, NONE_USED), "1.0 h")


def test_an_unknown_instance_is_refused() -> None:
    with pytest.raises(BadInput, match="nearest known"):
        prices_of("c5.enormous")


def test_the_same_machine_elsewhere_takes_as_long() -> None:
    spent = Spent(100, 8, 1, gathers=500, tensors=300, held_bytes=2**30)
    found = elsewhere.elsewhere(spent, SKYLAKE, BOOK, skip="none")
    mine = [each for each in found if each["instance"] == "c5.2xlarge" and not each["spot"]]
    assert all(each["seconds"] == pytest.approx(100) for each in mine)
    assert all(each["value"] == pytest.approx(1 / (each["seconds"] * each["usd"])) for each in found[:3])


@given(st.floats(0, 800), st.floats(0, 800))
def test_no_alternative_takes_no_time_and_none_is_the_type_it_ran_on(gathers: float, tensors: float) -> None:
    spent = Spent(100, 8, 2, gathers, tensors, held_bytes=2**30)
    found = elsewhere.elsewhere(spent, SKYLAKE, BOOK, skip="c5.2xlarge")
    machines = [each for each in found if each["instance"] is not None]
    assert all(each["seconds"] > 0 and each["usd"] > 0 for each in machines)
    assert all(each["instance"] != "c5.2xlarge" for each in machines)


def test_time_in_which_threads_wait_is_not_divided_among_more_threads() -> None:
    idle = Spent(100, 2, 1, gathers=0, tensors=0, held_bytes=1)
    assert elsewhere._seconds(BOOK.instance("c5n.4xlarge"), idle, SKYLAKE) == pytest.approx(100)


def test_only_machines_with_room_for_its_memory_are_alternatives() -> None:
    spent = Spent(100, 8, 1, 500, 300, held_bytes=50 * 2**30)
    found = elsewhere.elsewhere(spent, SKYLAKE, BOOK, skip="none")
    assert {each["instance"] for each in found} <= {"r5.2xlarge", "r5d.2xlarge", None}


def test_a_run_that_no_other_machine_holds_is_told_so() -> None:
    spent = Spent(100, 8, 1, 0, 0, held_bytes=1 << 50)
    assert elsewhere.told(elsewhere.elsewhere(spent, SKYLAKE, BOOK, skip="none")).startswith(
        "no other machine"
    )


def test_alternatives_are_told_in_a_line() -> None:
    spent = Spent(100, 8, 1, gathers=500, tensors=300, held_bytes=2**30)
    said = elsewhere.told(elsewhere.elsewhere(spent, SKYLAKE, BOOK, skip="c5.2xlarge"))
    assert said.startswith("the same run on: 1 × ")
    assert ":spot" in said
    assert "on Lambdas, at least $" in said
    assert "\n" not in said


def test_lambdas_on_this_machine_cost_nothing_and_no_dollars_are_told() -> None:
    used = {"invocations": 3, "billed_gb_seconds": 7.0, "usd": 0.5, "relaunched": 1, "retried": 0}
    used["prices"] = {"region": "us-east-1", "architecture": "x86_64", "as_of": "2026-08"}
    local = run_prices.told_lambdas(used, paid=False)
    assert local == "Lambdas: 3 invocations, 7.0 GB-seconds, 1 tasks done again"
    paid = run_prices.told_lambdas(used, paid=True)
    assert paid == f"{local}; they cost $0.500000 (list prices, us-east-1 x86_64, 2026-08)"

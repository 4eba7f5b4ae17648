"""A run's dollars while it lasts."""

import time
from collections.abc import Callable

import pytest

from siafu.cost.prices import lambda_prices, price_book
from siafu.cost.run_prices import RunPrices
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress
from siafu.report.run_cost import RunCost

BOOK = price_book()
PRICES = RunPrices.of(BOOK, "c5.2xlarge", 1, like=(8, None, "x86_64"))


def epoch(number: int, gb_seconds: float = 0.0) -> EpochMetrics:
    busy = {"train T0": 1.0, "train G1": 2.0, "evaluate ∇G1": 3.0, "update": 4.0}
    lambdas = {"gb_seconds": gb_seconds}
    return EpochMetrics(number, 0.5, None, None, None, None, 1.0, None, busy_seconds=busy, lambdas=lambdas)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that it is: a list of one number."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_an_epoch_is_noted_with_what_the_run_has_cost(clock: list[float]) -> None:
    history = [epoch(1)]
    cost = RunCost(PRICES, history, before=3600)
    clock[0] = 3600.0
    assert cost.note().usd == pytest.approx(2 * 0.34)
    assert history[-1].usd == pytest.approx(2 * 0.34)


def test_lambdas_of_all_epochs_are_in_it(clock: list[float]) -> None:
    prices = RunPrices.of(
        BOOK, "c5.2xlarge", 1, like=(8, None, "x86_64"), lambdas=lambda_prices("us-east-1", "x86_64")
    )
    cost = RunCost(prices, [epoch(1, 1e6), epoch(2, 2e6)])
    clock[0] = 3600.0
    assert cost.note().usd == pytest.approx(0.34 + 3 * 16.6667)


def test_what_it_will_cost_is_told_by_the_share_that_is_done(clock: list[float]) -> None:
    cost = RunCost(PRICES, [epoch(1)])
    clock[0] = 3600.0
    assert cost.told(0.25) == "$0.34 of $1.36"


def test_a_forecast_leaves_out_the_start(clock: list[float]) -> None:
    cost = RunCost(PRICES, [epoch(1)])
    clock[0] = 3600.0
    cost.tell(Progress())
    clock[0] = 7200.0
    assert cost.told(0.5) == "$0.68 of $1.02"


class Listener(Progress):
    """Notes whether anybody speaks of dollars."""

    told = False

    def priced(self, told: Callable[[float], str]) -> None:
        self.told = True


def test_dollars_are_told_only_of_a_named_machine_or_of_lambdas_that_cost(clock: list[float]) -> None:
    paid = lambda_prices("us-east-1", "x86_64")
    for instance, lambdas, wanted in ((None, None, False), ("c5.2xlarge", None, True), (None, paid, True)):
        listener = Listener()
        cost = RunCost(
            RunPrices.of(BOOK, instance, 1, like=(8, 16 << 30, "x86_64"), lambdas=lambdas), [epoch(1)]
        )
        clock[0] += 3600.0
        cost.tell(listener)
        assert (listener.told, cost.note().usd is not None) == (wanted, wanted)


def test_the_bill_has_alternatives_and_tells_gathers_from_the_rest(clock: list[float]) -> None:
    cost = RunCost(PRICES, [epoch(1), epoch(2)])
    spent = cost._spent(100.0, 1 << 30)
    assert (spent.gathers, spent.tensors) == (10.0, 10.0)
    bill = cost.bill(100.0, 1 << 30, {"invocations": 0, "billed_gb_seconds": 0.0})
    assert len(bill["alternatives"]) == 5
    assert all(each["instance"] != "c5.2xlarge" for each in bill["alternatives"])

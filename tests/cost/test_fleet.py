"""Fleets, and money as people read it."""

import pytest

from siafu.cost.fleet import Fleet
from siafu.cost.money import dollars
from siafu.cost.prices import price_book

BOOK = price_book()


def test_several_machines_cost_as_many_times_as_one() -> None:
    fleet = Fleet(BOOK.rental("c5n.2xlarge"), 12)
    assert fleet.usd(3600, BOOK.billing) == pytest.approx(12 * 0.432)
    assert str(fleet) == "12 × c5n.2xlarge"


def test_the_papers_bill_for_twelve_machines() -> None:
    # Table 4: GCN on Reddit-large, CPU only: 1290.5 s on 12 × c5n.2xlarge, published as 1.85 dollars.
    assert Fleet(BOOK.rental("c5n.2xlarge"), 12).usd(1290.5, BOOK.billing) == pytest.approx(1.85, abs=0.02)


def test_the_head_of_a_spot_cluster_is_on_demand() -> None:
    assert Fleet(BOOK.rental("c5.2xlarge:spot"), 3).usd_h == pytest.approx(0.34 + 2 * 0.158)
    assert Fleet(BOOK.rental("c5.2xlarge:spot"), 1).usd_h == pytest.approx(0.158)


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0, "$0.00"), (1234.5, "$1,234.50"), (0.1, "$0.10"), (0.0042, "$0.0042"), (0.0000173, "$0.000017")],
)
def test_money_is_told_in_cents_or_in_digits_that_count(usd: float, text: str) -> None:
    assert dollars(usd) == text

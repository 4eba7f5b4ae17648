"""Layouts in plans: by the machines' networks and memory, in the table and in the command."""

from dataclasses import replace

import pytest

from siafu.cost.fleet import Fleet
from siafu.cost.prices import PriceBook, price_book
from siafu.planning import words
from siafu.planning.estimate import Estimates
from siafu.planning.machines import memory_budget
from siafu.planning.offer import TrainingSetup
from siafu.planning.planner import make_plan
from siafu.planning.request import Request
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import ModelShape
from tests.planning.plans import reference

BOOK = price_book()
# Dense, and dealt out by chance: rows of nearly all vertices are ghosts everywhere.
DENSE = GraphShape(232_965, 114_600_000, 602, 41)


def book_with(**changes: object) -> PriceBook:
    """The book with one more machine: `mine`, which is r5.xlarge but for these fields."""
    mine = replace(BOOK.instance("r5.xlarge"), name="mine", **changes)  # type: ignore[arg-type]
    return replace(BOOK, instances={**BOOK.instances, "mine": mine})


def request(**changes: object) -> Request:
    given = {"instances": ("mine",), "most_servers": 4, "epochs": 20, "lambdas": False} | changes
    return Request("dense", DENSE, ModelShape("gcn", 128, 3), **given)  # type: ignore[arg-type]


def layout_on(book: PriceBook, **changes: object) -> str:
    fleet = Fleet(book.rental("mine"), 4)
    return Estimates(request(**changes), reference(), book).layout(TrainingSetup(fleet))


def test_a_slow_network_is_given_columns_and_a_fast_one_vertices() -> None:
    assert layout_on(book_with(network_gbps=1.0)).startswith("columns")
    assert layout_on(book_with(network_gbps=400.0)) == "vertices"


def test_columns_that_do_not_fit_as_they_are_are_not_chosen() -> None:
    book = book_with(network_gbps=1.0)
    fits = Estimates(request(), reference(), book).fits
    by_columns = layout_on(book)
    small = next(
        each
        for each in (book_with(network_gbps=1.0, memory_gib=gib / 2) for gib in range(40, 2, -1))
        if not fits.fits_as_it_is(each.instance("mine"), 4, by_columns)
    )
    assert memory_budget(small.instance("mine")) > fits.least(small.instance("mine"), 4)
    assert layout_on(small) == "vertices"


@pytest.mark.parametrize("asked", ["vertices", "columns"])
def test_a_layout_that_is_asked_for_is_taken(asked: str) -> None:
    assert layout_on(book_with(network_gbps=1.0), layout=asked) == asked


def test_the_plan_says_the_layout_and_its_command_has_it() -> None:
    book, forced = book_with(network_gbps=1.0, memory_gib=2.8), "columns:1"
    plan = make_plan(replace(request(), layout=forced, disks=False), prices=book, measured=reference())
    several = [each for each in plan.offers if each.setup.fleet.servers > 1 and each.setup.mode == "pipe"]
    assert several
    assert all(each.layout == forced and each.summary()["layout"] == forced for each in several)
    told = replace(plan, chosen=several[0])
    assert words.row(several[0])[words.HEADERS.index("layout")] == forced
    assert f"--layout {forced}" in words.commands(told)[-1]

"""What Lambdas of several servers cost, added up."""

from siafu.pipeline.ids import Address, ServerId
from siafu.runtime.counters.bills import Bills

ONE, TWO = Address("graph", ServerId(0)), Address("graph", ServerId(1))


def test_without_lambdas_there_is_nothing() -> None:
    assert Bills().counters() == {}


def test_those_of_all_servers_are_added() -> None:
    bills = Bills()
    bills.note(ONE, 1, {"usd": 0.5, "kinds": {"a": {"tasks": 3}}, "prices": {"region": "r"}})
    bills.note(
        TWO, 1, {"usd": 0.25, "kinds": {"a": {"tasks": 1}, "b": {"tasks": 2}}, "prices": {"region": "r"}}
    )
    kinds = {"a": {"tasks": 4}, "b": {"tasks": 2}}
    assert bills.counters() == {"lambda": {"usd": 0.75, "kinds": kinds, "prices": {"region": "r"}}}


def test_of_what_a_server_tells_the_last_counts() -> None:
    bills = Bills()
    bills.note(ONE, 1, {"invocations": 2})
    bills.note(ONE, 1, {"invocations": 5})
    assert bills.counters() == {"lambda": {"invocations": 5}}


def test_what_a_lost_server_told_is_kept() -> None:
    bills = Bills()
    bills.note(ONE, 1, {"invocations": 2})
    bills.note(ONE, 2, {"invocations": 3})
    assert bills.counters() == {"lambda": {"invocations": 5}}


def test_how_many_there_were_is_added_epoch_by_epoch() -> None:
    bills = Bills()
    bills.note(ONE, 1, {"counts": [2, 3, 4]})
    bills.note(TWO, 1, {"counts": [1, 1]})
    assert bills.counters() == {"lambda": {"counts": [3, 4, 4]}}

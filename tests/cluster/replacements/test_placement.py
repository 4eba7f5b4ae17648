"""Where servers and their warm copies go, for any number of machines, and as machines come and go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.cluster.replacements.placement import Seats, seats
from siafu.pipeline.ids import Address
from tests.cluster.cluster_runs import graph

FOUR = [graph(index) for index in range(4)]


def named(count: int) -> list[str]:
    return [f"m{index}" for index in range(count)]


def crowds(found: Seats, machines: list[str]) -> list[int]:
    """How many servers each machine has, most first."""
    counted = Counter(found.primary.values())
    return sorted((counted[each] for each in machines), reverse=True)


def after_loss(found: Seats, lost: str) -> Counter[str]:
    """How many servers each machine has when the first warm copies took over from a lost one."""
    return Counter(found.warm[each][0] if where == lost else where for each, where in found.primary.items())


@pytest.mark.parametrize(
    ("machines", "primaries", "most_after"),
    [(1, [4], 0), (2, [2, 2], 4), (3, [2, 1, 1], 2), (4, [1, 1, 1, 1], 2), (5, [1, 1, 1, 1, 0], 1)],
)
def test_four_servers_on_one_to_five_machines(machines: int, primaries: list[int], most_after: int) -> None:
    there = named(machines)
    found = seats(FOUR, there)
    assert crowds(found, there) == primaries
    if machines == 1:
        assert set(found.warm.values()) == {()}
        return
    lost = found.primary[FOUR[0]]
    assert max(after_loss(found, lost).values()) == most_after
    for each in there:
        assert max(after_loss(found, each).values()) <= max(2, most_after)


def test_machines_without_servers_hold_the_copies() -> None:
    found = seats(FOUR, named(8))
    assert {each for copies in found.warm.values() for each in copies} == {"m4", "m5", "m6", "m7"}


def test_a_lost_server_goes_where_it_is_warm_and_a_new_machine_takes_one_from_the_fullest() -> None:
    before = seats(FOUR, named(4))
    left = [each for each in named(4) if each != "m1"]
    after = seats(FOUR, left, before)
    moved = [each for each in FOUR if after.primary[each] != before.primary[each]]
    assert [before.primary[each] for each in moved] == ["m1"]
    assert after.primary[moved[0]] == before.warm[moved[0]][0]
    joined = seats(FOUR, [*left, "new"], after)
    (again,) = [each for each in FOUR if joined.primary[each] != after.primary[each]]
    assert joined.primary[again] == "new"
    assert Counter(after.primary.values())[after.primary[again]] == 2


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Address], list[str], Seats, int]:
    """Servers, the machines that are there, where all were before, and how many copies are wanted."""
    servers = [graph(index) for index in range(draw(st.integers(1, 8)))]
    copies = draw(st.integers(0, 3))
    machines = draw(st.lists(st.sampled_from(named(9)), min_size=1, unique=True))
    now = Seats()
    for _ in range(draw(st.integers(0, 4))):
        now = seats(servers, machines, now, copies)
        machines = draw(st.lists(st.sampled_from(named(9)), min_size=1, unique=True))
    return servers, machines, now, copies


@given(histories())
def test_every_server_is_on_one_machine_and_its_copies_on_others(
    given: tuple[list[Address], list[str], Seats, int],
) -> None:
    servers, machines, now, copies = given
    found = seats(servers, machines, now, copies)
    assert list(found.primary) == list(found.warm) == servers
    for server in servers:
        everywhere = [found.primary[server], *found.warm[server]]
        assert set(everywhere) <= set(machines)
        assert len(set(everywhere)) == len(everywhere) == 1 + min(copies, len(machines) - 1)


@given(histories())
def test_no_machine_has_more_than_its_share_and_no_server_moves_without_need(
    given: tuple[list[Address], list[str], Seats, int],
) -> None:
    servers, machines, now, copies = given
    found = seats(servers, machines, now, copies)
    share = -(-len(servers) // len(machines))
    assert max(Counter(found.primary.values()).values()) <= share
    before = Counter(now.primary.values())
    stay = sum(min(before[each], share) for each in machines)
    kept = sum(found.primary[each] == now.primary.get(each) for each in servers)
    assert kept == stay


@given(histories())
def test_copies_of_one_machines_servers_are_spread_over_all_others(
    given: tuple[list[Address], list[str], Seats, int],
) -> None:
    servers, machines, now, _ = given
    found = seats(servers, machines, now, copies=1)
    for machine in machines if len(machines) > 1 else []:
        own = [each for each, where in found.primary.items() if where == machine]
        taken = Counter(found.warm[each][0] for each in own)
        assert max(taken.values(), default=0) <= -(-len(own) // (len(machines) - 1))


@given(histories())
def test_where_nothing_changed_nothing_moves(given: tuple[list[Address], list[str], Seats, int]) -> None:
    servers, machines, now, copies = given
    found = seats(servers, machines, now, copies)
    assert seats(servers, machines, found, copies) == found

"""Warm copies of servers: where they are made, when they take over, and what is done without them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.cluster.crew import Server, ServerLost
from siafu.cluster.post.member import Member
from siafu.cluster.replacements.eager_copies import EagerCopies
from siafu.cluster.replacements.seats import WarmSeats
from siafu.cluster.stations.graph_station import Share
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup
from tests.cluster.cluster_runs import graph, weight
from tests.pipeline.small import setup

SHARE = Share([(0, 4)], 4, 9, 3, 10**6, 10**6, 10**6, peak_bytes=10**7, taken_bytes=4 * 10**6)


@dataclass
class Seat:
    """A warm copy that does nothing."""

    server: Address
    machine: str
    room: Share
    is_there: bool = True

    @property
    def where(self) -> str:
        return f"{self.machine}, process 1"

    def share(self) -> Share | None:
        return self.room if self.server.role == "graph" else None

    def run_ahead(self, life: int, setup: Setup, members: Sequence[Member]) -> Member:
        return Member(Address("copy", self.server.index), life, self.machine, "", "", "", "")

    def take_in(self, life: int) -> Server:
        raise NotImplementedError

    def drop(self) -> None:
        self.is_there = False


@dataclass
class At:
    machine: str


@dataclass
class SmallCrew:
    """Machines by name; made: every copy ever; full: machines without memory for one."""

    names: list[str]
    full: set[str] = field(default_factory=set)
    made: list[Seat] = field(default_factory=list)
    aside: list[bool] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    room: int = 10**9

    def machines(self) -> list[str]:
        return self.names

    def prepare(self, server: Address, machine: str, *, aside: bool) -> Seat:
        self.aside.append(aside)
        self.before()
        if machine not in self.names:
            raise ServerLost(f"{machine} is gone")
        free = 10**6 if machine in self.full else self.room
        self.made.append(Seat(server, machine, replace(SHARE, free_bytes=free)))
        return self.made[-1]


class Copied:
    """What a run is told of its eager copies."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def members(self) -> list[Member]:
        return []

    def copy_came(self, member: Member) -> None:
        self.told.append(f"{member.address} came, {member.life}")

    def copy_left(self, member: Member) -> None:
        self.told.append(f"{member.address} left, {member.life}")


class Run:
    """A run's servers, and what its warm copies ask of it."""

    def __init__(self, names: list[str], copies: int = 1, full: set[str] | None = None) -> None:
        self.crew = SmallCrew(list(names), full or set())
        self.where = {graph(0): "a", graph(1): "b", weight(0): "a"}
        self.asked: list[Address] = []
        self.notes: list[str] = []
        self.copied = Copied()
        self.eager = EagerCopies(self.copied)
        self.seats = WarmSeats(
            self.crew,  # type: ignore[arg-type]
            copies,
            lambda: self.where,
            self.asked.append,
            lambda server, text: self.notes.append(f"{server}: {text}"),
            self.eager,
        )

    def begin(self) -> list[str]:
        servers: Any = {address: At(machine) for address, machine in self.where.items()}
        return self.seats.begin(servers, {graph(0): SHARE, graph(1): SHARE})

    def look(self) -> None:
        self.seats._look()

    def there(self) -> set[tuple[str, str]]:
        return {(str(each.server), each.machine) for each in self.crew.made if each.is_there}


def test_the_first_copies_are_on_other_machines_and_told_with_their_memory() -> None:
    run = Run(["a", "b"])
    told = run.begin()
    assert run.there() == {("graph server 0", "b"), ("graph server 1", "a"), ("weight server 0", "b")}
    assert "warm copy of graph server 0 on b, process 1: 4 MB, 10 MB at the peak if it takes over" in told
    assert "warm copy of weight server 0 on b, process 1" in told


def test_on_one_machine_there_are_no_copies_and_the_run_says_so() -> None:
    run = Run(["a"])
    run.where[graph(1)] = "a"
    assert run.begin() == ["no warm copies: there is one machine, and a lost server starts cold"]
    run.look()
    assert not run.there()


def test_without_redundancy_there_are_none() -> None:
    run = Run(["a", "b", "c"], copies=0)
    assert run.begin() == []
    run.look()
    assert not run.crew.made
    assert run.seats.take(graph(0)) is None


def test_a_machine_without_memory_for_one_has_none_and_is_not_asked_again() -> None:
    run = Run(["a", "b"], full={"b"})
    told = next(line for line in run.begin() if "graph server 0" in line)
    assert told.startswith("graph server 0 has no warm copy: its machine has 0.00 GB free")
    assert told.endswith("; lost, it starts cold")
    made = len(run.crew.made)
    run.look()
    assert len(run.crew.made) == made
    assert ("graph server 0", "b") not in run.there()


def test_a_store_that_has_changed_makes_no_copy() -> None:
    run = Run(["a", "b"])
    other = replace(SHARE, bounds=[(0, 5)])
    run.seats.begin({graph(0): At("a")}, {graph(0): other})  # type: ignore[dict-item]
    assert not run.there()


def test_one_that_took_over_is_made_anew_and_then_all_is_whole() -> None:
    run = Run(["a", "b"])
    run.begin()
    run.look()
    assert run.seats.wait(0)
    taken = run.seats.take(graph(0))
    assert taken is not None
    assert taken.machine == "b"
    assert not run.seats.wait(0)
    run.crew.names.remove("a")
    run.crew.names.append("c")
    run.where |= {graph(0): "b", weight(0): "b"}
    for each in run.crew.made:
        each.is_there &= each.machine != "a"
    run.look()
    assert ("graph server 1", "c") in run.there()
    assert run.asked in ([graph(0)], [graph(1)]), "two are on b: one moves to c"


def test_copies_whose_processes_ended_are_made_again() -> None:
    run = Run(["a", "b"])
    run.begin()
    run.crew.made[0].drop()
    lost = run.crew.made[0].server
    assert run.seats.take(lost) is None
    run.look()
    assert run.seats.take(lost) is not None
    assert run.crew.aside == [False] * 3 + [True], "once the run goes on they give way to it"


def test_servers_of_a_machine_that_will_be_taken_away_move_to_others_with_or_without_redundancy() -> None:
    for copies in (0, 1):
        run = Run(["a", "b", "c"], copies)
        run.begin()
        assert run.seats.leave("a")
        run.look()
        assert sorted(map(str, run.asked)) == ["graph server 0", "weight server 0"]
        taken = run.seats.take(graph(0))
        assert taken is not None
        assert taken.machine != "a"
        assert run.seats.leave("b")
        assert not run.seats.leave("c"), "there is no other"


def test_where_nothing_can_be_handed_over_a_crowded_machine_stays_so() -> None:
    run = Run(["a", "b", "c"])
    run.seats.may_move = False
    run.where[graph(1)] = "a"
    run.begin()
    run.look()
    run.look()
    assert not run.asked
    assert len(run.crew.made) == 3
    assert run.seats.wait(0)


def test_one_that_is_ready_after_the_run_is_over_is_ended() -> None:
    run = Run(["a", "b"])
    run.crew.before = run.seats.close
    run.begin()
    assert not run.there()


def test_copies_of_graph_servers_are_eager_if_the_run_has_such_and_one_that_is_lost_is_made_again() -> None:
    run = Run(["a", "b"])
    run.begin()
    run.look()
    assert not run.copied.told
    run.eager.setup = setup(intervals=(1, 1), first=0)
    run.look()
    run.look()
    assert run.copied.told == ["copy of graph server 0 came, 1", "copy of graph server 1 came, 1"]
    assert [each.address for each in run.eager.members] == [
        Address("copy", each.index) for each in run.where
    ][:2]
    seat = run.eager.seat(Address("copy", graph(0).index), 1)
    assert seat is not None
    assert run.eager.seat(Address("copy", graph(0).index), 2) is None
    seat.drop()
    run.look()
    assert run.copied.told[2:] == ["copy of graph server 0 left, 1", "copy of graph server 0 came, 2"]
    taken = run.seats.take(graph(1))
    assert taken is not None
    run.eager.end(taken)
    assert run.copied.told[-1] == "copy of graph server 1 left, 1"


def test_a_machine_must_have_room_for_the_rows_of_all_its_eager_copies() -> None:
    run = Run(["a", "b"])
    run.where = {graph(0): "a", graph(1): "a"}
    run.eager.setup = setup(intervals=(1, 1), first=0)
    run.crew.room = 10**7  # for one copy's rows, of 6 MB, and not for two
    told = run.begin()
    assert all("has no warm copy" in line for line in told), told


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"redundancy": 1}, "redundancy is 1, and warm copies are for servers on a cluster"),
        ({"redundancy": 2, "servers": 2, "cluster": "auto"}, "of 2 servers there are at most 1 warm copies"),
        ({"redundancy": -1}, "redundancy is -1"),
        ({"redundancy": "soon"}, "redundancy"),
        ({"redundancy": "eager"}, "redundancy is eager, and warm copies are for servers on a cluster"),
        ({"redundancy": "eager", "cluster": "auto"}, "of 1 servers there are at most 0 warm copies"),
        (
            {"redundancy": "eager", "servers": 2, "cluster": "auto", "mode": "async"},
            "redundancy is eager, and epochs of mode async overlap",
        ),
    ],
)
def test_redundancy_that_no_cluster_can_have_is_refused(changes: dict[str, Any], why: str) -> None:
    import siafu
    from tests.toys import toy_graph

    made = toy_graph(60)
    with pytest.raises(BadInput, match=why):
        siafu.train(made, siafu.nn.GCN(made.num_features, 4, 2, made.num_classes), epochs=1, **changes)

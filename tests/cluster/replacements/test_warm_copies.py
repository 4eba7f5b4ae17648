"""Servers that are killed, moved and stopped while warm copies of them wait on other machines: the same bits, no epoch lost."""

import os
import signal
from functools import cache
from typing import Any

import pytest
import torch

from siafu.cluster.post.requests import Leaving
from siafu.pipeline.ids import Address
from siafu.runtime.happenings import Rewound
from siafu.runtime.letter import Letter
from tests.cluster.cluster_runs import CrewTrainer, Dooms, Ran, graph, train_on_crew, weight
from tests.cluster.dooms import Doom

pytestmark = pytest.mark.slow  # starts servers as processes

EPOCHS = 12
MACHINES = ["a", "b", "c"]
WHOLE_SECONDS = 60.0


def train(name: str = "gcn", *, copies: int = 1, mode: str = "pipe", **more: Any) -> Ran:
    """Three graph servers on three machines."""
    crew = {"names": list(MACHINES)}
    return train_on_crew(name, epochs=EPOCHS, servers=3, mode=mode, redundancy=copies, crew=crew, **more)


@cache
def undisturbed(name: str, mode: str) -> Ran:
    return train(name, copies=0, mode=mode)


def assert_same(ran: Ran, name: str = "gcn", mode: str = "pipe", lost: int = 1) -> None:
    """The bits of an undisturbed run, every epoch once, and rows that came twice the same."""
    other = undisturbed(name, mode)
    assert ran.losses == other.losses
    assert ran.epochs == list(range(1, EPOCHS + 1))
    assert all(torch.equal(ran.weights[each], other.weights[each]) for each in other.weights)
    if lost:
        assert ran.counters["servers_lost"] >= lost
    assert ran.counters["epochs_lost"] == 0
    assert ran.counters.get("rows_differ", 0) == 0


KILLS: dict[str, Dooms] = {
    "a graph server": {(graph(1), 1): Doom("train backward gather", 5)},
    "a weight server": {(weight(0), 1): Doom("Accumulate", 9)},
    "one of each": {(graph(0), 1): Doom("scatter", 20), (weight(1), 1): Doom("Update", 3)},
    "the copy as it takes over": {(graph(2), 1): Doom("EpochFinished", 3), (graph(2), 2): Doom("Ready")},
}


@pytest.mark.parametrize("name", KILLS)
def test_a_warm_copy_takes_the_place_of_one_that_is_killed(name: str) -> None:
    ran = train(dooms=KILLS[name])
    assert_same(ran, lost=len(KILLS[name]))
    assert any("and replaced by a warm copy in " in told.lost for told in ran.rewound)


@pytest.mark.parametrize(("name", "mode"), [("gat", "sync"), ("sage", "pipe")])
def test_so_it_does_for_other_models(name: str, mode: str) -> None:
    ran = train(name, mode=mode, dooms={(graph(1), 1): Doom("train backward tensor", 5)})
    assert_same(ran, name, mode)
    assert "by a warm copy" in ran.rewound[0].lost


def test_a_server_and_its_copy_together_are_replaced_cold() -> None:
    def ended(trainer: CrewTrainer, epoch: int) -> None:
        if epoch == 4:
            for seat in trainer.runtime.seats._seats[graph(1)]:
                seat.drop()
            trainer.crew.servers[graph(1)].process.kill()

    ran = train(ended=ended)
    assert_same(ran)
    assert "graph server 1 was lost" in ran.rewound[0].lost
    assert "warm" not in ran.rewound[0].lost


def test_a_machine_goes_with_all_that_is_on_it_and_one_that_comes_takes_its_share() -> None:
    def ended(trainer: CrewTrainer, epoch: int) -> None:
        seats = trainer.runtime.seats
        if epoch == 3:
            seats.wait(WHOLE_SECONDS)
            trainer.crew.take_away("a")
        if epoch == 5:
            trainer.crew.names.append("d")
        if epoch > 5:
            seats.wait(1.0)
        if epoch == EPOCHS - 1:
            machines = [
                each.machine for address, each in trainer.runtime.servers.items() if address.role == "graph"
            ]
            assert sorted(machines) == ["b", "c", "d"]

    ran = train(ended=ended)
    assert_same(ran, lost=2)
    assert ran.counters["servers_moved"] >= 1
    assert any("moved to another machine in " in told.lost for told in ran.rewound)


@pytest.mark.parametrize("copies", [0, 1])
def test_a_notice_moves_the_servers_of_a_machine_at_an_epochs_end(copies: int) -> None:
    moved: list[str] = []

    def heard(trainer: CrewTrainer, event: Any) -> None:
        moved.extend([event.lost] if isinstance(event, Rewound) else [])

    def ended(trainer: CrewTrainer, epoch: int) -> None:
        if epoch == 3:
            for server in (graph(0), weight(0)):
                trainer.runtime._hear(server, Letter(Leaving(server, "AWS will terminate its machine soon")))
        if epoch > 3:
            trainer.runtime.seats.wait(1.0)
        if epoch == EPOCHS - 1:
            assert "a" not in {each.machine for each in trainer.runtime.servers.values()}

    ran = train(copies=copies, heard=heard, ended=ended)
    assert_same(ran, lost=0)
    assert ran.counters["servers_lost"] == 0
    assert ran.counters["servers_moved"] >= 2
    assert all("moved to another machine" in told for told in moved)


def test_one_that_is_stopped_is_given_up_and_when_it_wakes_nobody_hears_it() -> None:
    stopped: Address = graph(2)
    woken: list[int] = []

    def ended(trainer: CrewTrainer, epoch: int) -> None:
        if epoch == 3:
            server = trainer.crew.servers[stopped]
            server.out_of_reach = True  # nobody can end it: it is as if its machine could not be reached
            os.kill(server.process.pid or 0, signal.SIGSTOP)

    def heard(trainer: CrewTrainer, event: Any) -> None:
        if isinstance(event, Rewound) and not woken:
            old = next(each for each in trainer.crew.all_ever if each.out_of_reach)
            woken.append(old.process.pid or 0)
            os.kill(woken[0], signal.SIGCONT)

    ran = train(lost_after=3.0, ended=ended, heard=heard)
    assert woken
    assert_same(ran)

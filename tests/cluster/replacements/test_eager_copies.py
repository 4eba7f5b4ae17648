"""Eager copies of servers that are killed: the same bits, and forward tasks that they had done are not run again."""

from functools import cache
from typing import Any

import pytest
import torch

from siafu.pipeline.ids import Address, ServerId
from tests.cluster.cluster_runs import CrewTrainer, Dooms, Ran, graph, train_on_crew
from tests.cluster.dooms import Doom

pytestmark = pytest.mark.slow  # starts servers as processes

EPOCHS = 12
MACHINES = ["a", "b", "c"]


def train(name: str = "gcn", *, copies: Any = "eager", mode: str = "pipe", **more: Any) -> Ran:
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
    ages = other.counters["row_age_histogram"]
    assert ran.counters["row_age_histogram"] == ages, "gathers that a copy had done count, too"


def late_in_an_epoch(count: int) -> Doom:
    """A kill at a backward task of the fourth epoch or later: copies have had time to begin."""
    return Doom("train backward gather", count)


@pytest.mark.parametrize(("name", "mode"), [("gcn", "pipe"), ("gat", "sync"), ("norm", "pipe")])
def test_an_eager_copy_goes_on_with_the_forward_tasks_that_it_has_done(name: str, mode: str) -> None:
    def ended(trainer: CrewTrainer, epoch: int) -> None:
        if epoch == 2:
            assert len(trainer.runtime.copies.members) == 3

    ran = train(name, mode=mode, dooms={(graph(1), 1): late_in_an_epoch(20)}, ended=ended)
    assert_same(ran, name, mode)
    assert "by a warm copy" in ran.rewound[0].lost
    assert ran.counters["tasks_done_ahead"] > 0
    assert ran.counters["rows_compared"] > 0


LOSSES: dict[str, Dooms] = {
    "at its first tasks": {(graph(0), 1): Doom("train forward tensor", 13)},
    "two at once": {(graph(0), 1): late_in_an_epoch(20), (graph(1), 1): late_in_an_epoch(20)},
    "one that was a copy": {(graph(2), 1): late_in_an_epoch(12), (graph(2), 2): Doom("GradientArrived", 3)},
}


@pytest.mark.parametrize("name", LOSSES)
def test_whenever_servers_are_lost_the_result_is_the_same(name: str) -> None:
    assert_same(train(dooms=LOSSES[name]), lost=len(LOSSES[name]))


def test_copies_that_are_lost_alone_or_with_their_server_cost_nothing_but_their_work() -> None:
    def ended(trainer: CrewTrainer, epoch: int) -> None:
        copies = trainer.runtime.copies
        if epoch in (4, 8):
            found = copies.seat(Address("copy", ServerId(1)), None)
            assert found is not None
            found.server.process.kill()  # type: ignore[attr-defined]
        if epoch == 8:
            trainer.crew.servers[graph(1)].process.kill()
        if epoch == 6:
            trainer.runtime.seats.wait(60.0)

    ran = train(ended=ended)
    assert_same(ran)
    assert "warm" not in ran.rewound[-1].lost


def test_undisturbed_copies_change_nothing_but_the_bytes_that_travel() -> None:
    ran = train()
    assert_same(ran, lost=0)
    assert ran.counters["bytes_scattered"] > undisturbed("gcn", "pipe").counters["bytes_scattered"]
    assert "tasks_done_ahead" not in ran.counters


def test_gathers_by_columns_have_plain_warm_copies() -> None:
    def ended(trainer: CrewTrainer, epoch: int) -> None:
        assert not trainer.runtime.copies.members

    ran = train(layout="columns", ended=ended)
    assert ran.epochs == list(range(1, EPOCHS + 1))

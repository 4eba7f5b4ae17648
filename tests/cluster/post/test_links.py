"""Servers that are paused or cut off: waited for, then replaced; and what they say when they are back is refused."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from siafu.cluster.post.requests import ServerUnreachable
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.happenings import Rewound
from siafu.runtime.letter import Letter
from tests.cluster import networks
from tests.cluster.cases import truth
from tests.cluster.cluster_runs import CrewTrainer, assert_exact, graph, train_on_crew, weight
from tests.cluster.dooms import Doom
from tests.cluster.fork_crew import ForkServer

pytestmark = pytest.mark.slow  # waits for servers that are silent

LONG = 60.0
LOST_AFTER = 4.0
EPOCHS = 60


def wait_until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.02)


def paused(server: ForkServer) -> bool:
    return Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@pytest.mark.parametrize(
    ("server", "point", "apart"),
    [(graph(1), "scatter", True), (weight(0), "Accumulate", False)],
    ids=["a graph server on a machine of its own", "a weight server on the driver's"],
)
def test_one_that_is_paused_is_replaced_and_refused_when_it_wakes(
    server: Any, point: str, apart: bool
) -> None:
    ended = threading.Event()

    def heard(trainer: CrewTrainer, event: Any) -> None:
        old = trainer.crew.all_ever[list(trainer.crew.servers).index(server)]
        old.out_of_reach = True  # nobody can end it: it is as if its machine could not be reached
        if isinstance(event, Rewound) and not ended.is_set():
            assert f"{server} was lost (" in event.lost
            os.kill(old.process.pid or 0, signal.SIGCONT)
            wait_until(lambda: trainer.runtime.refusals.counts["unexpected"])
            old.process.join(LONG)
            assert old.process.exitcode == 0, "it ends by itself"
            ended.set()

    ran = train_on_crew(
        "gcn",
        epochs=EPOCHS,
        dooms={(server, 1): Doom(point, 30, signal.SIGSTOP)},
        lost_after=LOST_AFTER,
        checkpoint_every=0,
        crew={"apart": apart, "alone_after": LOST_AFTER},
        heard=heard,
    )
    assert ended.is_set()
    assert_exact(ran, truth("gcn", EPOCHS))
    assert LOST_AFTER < ran.counters["recovery_seconds"] + LOST_AFTER < LONG


def test_one_that_is_taken_for_lost_and_lives_on_keeps_nothing_from_its_replacement() -> None:
    complained: list[ForkServer] = []

    def heard(trainer: CrewTrainer, event: Any) -> None:
        if isinstance(event, EpochMetrics) and event.epoch == 3 and not complained:
            complained.append(trainer.crew.servers[graph(1)])
            # It goes on, and would acknowledge what its replacement must hear.
            complained[0].out_of_reach = True
            wrong = ServerUnreachable(graph(0), graph(1), 1, 2 * LONG)
            trainer.runtime._hear(graph(0), Letter(wrong))

    ran = train_on_crew("gcn", epochs=EPOCHS, heard=heard)
    assert_exact(ran, truth("gcn", EPOCHS))
    assert ran.counters["servers_lost"] == 1


def test_one_that_is_paused_for_a_moment_is_waited_for() -> None:
    def wake(trainer: CrewTrainer) -> None:
        server = trainer.crew.servers[graph(0)]
        wait_until(lambda: paused(server))
        time.sleep(1.0)  # shorter than a server may be silent
        os.kill(server.process.pid or 0, signal.SIGCONT)

    woken: list[threading.Thread] = []

    def heard(trainer: CrewTrainer, event: Any) -> None:
        if not woken:
            woken.append(threading.Thread(target=wake, args=(trainer,)))
            woken[0].start()

    dooms = {(graph(0), 1): Doom("scatter", 300, signal.SIGSTOP)}
    ran = train_on_crew("gcn", epochs=EPOCHS, dooms=dooms, lost_after=20.0, heard=heard)
    woken[0].join()
    assert_exact(ran, truth("gcn", EPOCHS))
    assert "servers_lost" not in ran.counters


def test_one_whose_task_takes_long_is_not_taken_for_dead_when_the_run_begins_again() -> None:
    dooms = {
        (graph(0), 1): Doom("train forward tensor", 10, seconds=6.0),
        (graph(1), 1): Doom("train forward tensor", 10),
    }
    ran = train_on_crew("gcn", epochs=5, dooms=dooms, lost_after=4.0)
    assert_exact(ran, truth("gcn", 5))
    assert ran.counters["servers_lost"] == 1


@pytest.fixture(scope="module")
def six_machines() -> Iterator[tuple[str, list[networks.Place]]]:
    if (why := networks.why_not()) is not None:
        pytest.skip(why)
    with networks.machines(6) as made:
        yield made


def test_a_link_that_is_cut_for_a_while_is_waited_for_and_one_that_stays_cut_is_done_without(
    six_machines: tuple[str, list[networks.Place]],
) -> None:
    here, places = six_machines
    to_cut = {4: graph(1), 8: weight(0)}  # for good, once that epoch is over
    victims: list[ForkServer] = []
    lost_after = 8.0  # TCP tries again at ever longer intervals, the last of them after 6 s

    def cut_off(trainer: CrewTrainer, server: Any) -> None:
        victim = trainer.crew.servers[server]
        assert victim.place is not None
        victim.out_of_reach = True
        victim.place.cut()
        victims.append(victim)

    def heard(trainer: CrewTrainer, event: Any) -> None:
        if isinstance(event, EpochMetrics) and event.epoch == 2:
            place = trainer.crew.servers[graph(1)].place
            assert place is not None
            place.cut()
            time.sleep(5.0)  # shorter than a server may be silent
            place.mend()
        if isinstance(event, EpochMetrics) and event.epoch in to_cut:
            cut_off(trainer, to_cut.pop(event.epoch))
        if isinstance(event, Rewound):
            for victim in victims:
                victim.process.join(LONG)
                assert victim.process.exitcode == 0, "it ends by itself"

    ran = train_on_crew(
        "gcn",
        epochs=150,
        evaluate_every=50,
        lost_after=lost_after,
        crew={"machine": here, "places": iter(places), "alone_after": lost_after + 1.0},
        heard=heard,
        checkpoint_every=0,
    )
    assert_exact(ran, truth("gcn", 150))
    lost = [
        server
        for told in ran.rewound
        for server in (graph(1), weight(0))
        if f"{server} was lost (" in told.lost
    ]
    assert lost == [graph(1), weight(0)], "and not for the five seconds before"

"""Graph servers that are processes of their own have Lambdas of their own, and lose neither a task nor a bill."""

from typing import Any

import psutil
import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.lambdas import Lambdas
from tests.cluster.cases import case, truth
from tests.cluster.cluster_runs import CrewTrainer, Ran, assert_exact, graph, train_on_crew
from tests.cluster.dooms import Doom

pytestmark = pytest.mark.slow  # starts servers as processes


EPOCHS = 5
INTERVALS = 6  # of both servers


def train_with_lambdas(name: str, count: int | None = 2, **changes: Any) -> Ran:
    return train_on_crew(name, epochs=EPOCHS, crew={"lambdas": Lambdas(count)}, **changes)


def lambdas_of(trainer: CrewTrainer) -> list[psutil.Process]:
    servers = [psutil.Process(each.process.pid) for each in trainer.crew.servers.values()]
    return [child for server in servers for child in server.children() if "python" in child.name()]


@pytest.mark.parametrize("name", ["gcn", "gat", "norm"])
def test_the_result_is_the_oracles(name: str) -> None:
    ran = train_with_lambdas(name, mode="sync" if name == "gat" else "pipe")
    assert_exact(ran, truth(name, EPOCHS))
    counted = ran.counters["lambda"]
    assert counted["invocations"] >= 2, "each server has one"
    assert counted["billed_gb_seconds"] > 0
    tasks = {kind: each["tasks"] for kind, each in counted["kinds"].items() if kind.startswith("train ")}
    assert tasks
    assert set(tasks.values()) == {EPOCHS * INTERVALS}


def test_a_lambda_that_is_killed_costs_nothing_but_time() -> None:
    killed = []

    def heard(trainer: CrewTrainer, event: Any) -> None:
        if isinstance(event, EpochMetrics) and event.epoch in (1, 3):
            for each in lambdas_of(trainer):
                each.kill()
                killed.append(each)

    ran = train_with_lambdas("gcn", heard=heard)
    assert len(killed) >= 2
    assert_exact(ran, truth("gcn", EPOCHS))
    assert "servers_lost" not in ran.counters


@pytest.mark.parametrize(
    "doom",
    [Doom("train backward tensor", 5), Doom("train forward gather", 8), Doom("report", 1)],
    ids=lambda doom: doom.point,
)
def test_a_graph_server_that_is_killed_is_replaced_with_lambdas_of_its_own(doom: Doom) -> None:
    ran = train_with_lambdas("gcn", dooms={(graph(1), 1): doom})
    assert_exact(ran, truth("gcn", EPOCHS))
    assert ran.counters["servers_lost"] == 1
    assert ran.counters["gradients_applied"] == EPOCHS * INTERVALS * 2
    # All epochs are closed when the last reports are made: who comes in the place of one that was lost then has no task.
    assert ran.counters["lambda"]["invocations"] >= (1 if doom.point == "report" else 2)


def test_their_number_is_found_by_each_server() -> None:
    ran = train_with_lambdas("gcn", None, evaluate_every=EPOCHS)
    assert_exact(ran, truth("gcn", EPOCHS))
    counts = ran.counters["lambda"]["counts"]
    assert len(counts) == EPOCHS
    assert counts[0] == INTERVALS, "one an interval, over all servers"


def test_fewer_than_graph_servers_are_refused() -> None:
    given = case("gcn")
    asked = {"servers": 3, "cluster": "auto", "lambdas": "local", "lambda_count": 2}
    with pytest.raises(
        BadInput, match="each of 3 graph servers on a cluster has Lambdas of its own: give at least 3"
    ):
        siafu.train(given.graph, given.model, partition="hash", **asked)


@pytest.mark.parametrize(("count", "shares"), [(2, [1, 1]), (5, [3, 2]), (None, [None, None])])
def test_their_number_is_shared_out(count: int | None, shares: list[int | None]) -> None:
    of_each = [Lambdas(count).share(server, 2, "here", threads=8) for server in range(2)]
    assert [each.count for each in of_each] == shares


def test_where_there_is_one_a_core_a_server_has_one_a_thread() -> None:
    assert Lambdas(2, one_a_core=True).share(0, 2, "here", threads=8).count == 8

"""Servers as Ray actors, on a cluster of three nodes: machines with addresses of their own, where that can be had."""

import copy
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

import siafu
from siafu.base.errors import SiafuError
from siafu.cluster.driven_cluster import server_address
from siafu.cluster.on_ray import ray_actors
from siafu.graph import Graph
from siafu.graph.triples.triple_import import import_triples
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.happenings import Rewound
from siafu.training.pace import EpochEnd
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer
from tests.cli.command import spawn
from tests.cluster.cases import case, settings_of, truth
from tests.cluster.ray_nodes import RayNodes, ray_nodes
from tests.embedding.knowledge import SMALL, write_families
from tests.oracle import History
from tests.sessions import same_weights
from tests.test_exactness import assert_exact
from tests.test_statistics import assert_exact as assert_exact_norms
from tests.training_runs import Trained, options

pytestmark = pytest.mark.slow  # starts servers as processes

EPOCHS = 40
INTERVALS, PHASES = 6, 2  # of both servers; that have parameters
LONG = 120.0
Heard = Callable[[Trainer, Any], None]

pytest.importorskip("ray", reason="Ray is not installed: pip install 'siafu[cluster]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """Two workers of pytest may each have their own."""
    with ray_nodes(3, spares=1) as made:
        yield made


def stored(name: str, directory: Path) -> Graph:
    """A case's graph, from a store."""
    case(name).graph.save(directory / "store")
    return siafu.load(str(directory / "store"))


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return stored("gcn", tmp_path)


def train_on(
    cluster: RayNodes,
    graph: Graph,
    heard: Heard = lambda trainer, event: None,
    name: str = "gcn",
    redundancy: int | Literal["eager"] = 0,
    **changes: Any,
) -> tuple[Trained, list[Rewound]]:
    """Train as `siafu.train` does, but keep the weights of the last epoch."""
    given = case(name)
    layout = {"servers": 2, "intervals": 3, "epochs": EPOCHS, **settings_of(name)}
    settings = options(**(layout | changes))
    placed = choose_partition(graph, settings.servers, "hash")
    model = copy.deepcopy(given.model)
    trainer = Trainer(
        graph, model, settings, placed, given.programs, cluster=cluster.address, redundancy=redundancy
    )
    trainer.prepare()
    saved, rewound = [], []
    with closing(trainer.run()) as events:
        for event in events:
            if isinstance(event, Checkpoint):
                saved.append(event)
            elif isinstance(event, Rewound):
                rewound.append(event)
            heard(trainer, event)
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in saved[-1].tensors.items()
        if name.startswith("model.")
    }
    trained = Trained([epoch.train_loss for epoch in trainer.history], weights, trainer.counters())
    return trained, rewound


def exact() -> History:
    return truth("gcn", EPOCHS)


def test_a_run_on_three_nodes_is_the_oracles_whoever_is_killed(cluster: RayNodes, graph: Graph) -> None:
    killed: list[int] = []
    eager: list[str] = []

    def kill_one_of_each(trainer: Trainer, event: Any) -> None:
        eager.extend(str(each.address) for each in trainer._runtime.copies.members)  # type: ignore[union-attr]
        if isinstance(event, EpochMetrics) and event.epoch in (3, 6) and len(killed) < event.epoch // 3:
            role = "graph" if event.epoch == 3 else "weight"
            servers = trainer._runtime.servers  # type: ignore[union-attr]
            where = next(each.where for address, each in servers.items() if address.role == role)
            killed.append(int(re.findall(r"process (\d+)", where)[0]))
            os.kill(killed[-1], signal.SIGKILL)

    ran, rewound = train_on(cluster, graph, kill_one_of_each, mode="pipe", redundancy="eager")
    assert_exact(ran, exact())
    # Copies of weight servers are plain warm ones.
    assert set(eager) == {"copy of graph server 0", "copy of graph server 1"}
    assert "and replaced by a warm copy in " in rewound[0].lost
    # Rows that differ are counted only where some came twice.
    assert (ran.counters["epochs_lost"], ran.counters.get("rows_differ", 0)) == (0, 0)
    assert ran.counters["servers_lost"] >= len(killed) == 2
    assert ran.counters["gradients_applied"] == EPOCHS * INTERVALS * PHASES
    assert "graph server 0 was lost (" in rewound[0].lost
    assert 0 < ran.counters["recovery_seconds"] < LONG


def test_samples_on_nodes_have_the_bits_of_one_process_though_a_server_is_killed(
    cluster: RayNodes, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from siafu.sampling.servers import ray_sample_crew

    crews: list[Any] = []

    class Watched(ray_sample_crew.RaySampleCrew):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            crews.append(self)

    def kill_one(end: EpochEnd) -> None:
        if end.metrics.epoch == 2:
            where = crews[0]._servers[server_address(1)].where
            os.kill(int(re.findall(r"process (\d+)", where)[0]), signal.SIGKILL)

    monkeypatch.setattr(ray_sample_crew, "RaySampleCrew", Watched)
    given = {"mode": "sampled", "fanout": "4,4", "batch": 8, "servers": 2, "partition": "hash", "epochs": 4}
    here, away = (copy.deepcopy(case("gcn").model) for _ in range(2))
    one = siafu.train(graph, here, **given)
    found = siafu.train(graph, away, cluster=cluster.address, callbacks=[kill_one], **given)
    assert [each.train_loss for each in found.history] == [each.train_loss for each in one.history]
    assert same_weights(here, away)
    assert found.counters["bytes_scattered"] == one.counters["bytes_scattered"]
    assert found.counters["servers_lost"] == 1


def test_statistics_of_all_vertices_are_taken_over_all_nodes(cluster: RayNodes, tmp_path: Path) -> None:
    graph = stored("norm", tmp_path)
    for mode, servers in (("sync", 2), ("pipe", 3)):
        ran, _ = train_on(cluster, graph, name="norm", mode=mode, servers=servers, epochs=6)
        assert_exact_norms(ran, truth("norm", 6))


def test_a_run_outlives_a_node_that_is_taken_away(cluster: RayNodes, graph: Graph) -> None:
    import ray

    here, taken = ray.get_runtime_context().get_node_id(), []

    def take_a_node_away(trainer: Trainer, event: Any) -> None:
        if isinstance(event, EpochMetrics) and event.epoch == 3 and not taken:
            servers = trainer._runtime.servers.values()  # type: ignore[union-attr]
            taken.append(next(each.node for each in servers if each.node != here))
            cluster.take_away(taken[0])

    try:
        ran, rewound = train_on(cluster, graph, take_a_node_away, mode="sync")
    finally:
        cluster.add()
    assert taken
    assert_exact(ran, exact())
    assert ran.counters["servers_lost"] >= 1
    assert rewound


def test_on_machines_with_addresses_of_their_own_asynchronous_epochs_learn(
    cluster: RayNodes, tmp_path: Path
) -> None:
    if cluster.why_not_separate is not None:
        pytest.skip(cluster.why_not_separate)
    machines, accuracies = set(), [0.0]

    def heard(trainer: Trainer, event: Any) -> None:
        machines.update(each.member.machine for each in trainer._runtime.servers.values())  # type: ignore[union-attr]
        if isinstance(event, EpochMetrics):
            accuracies.append(event.val_accuracy or 0.0)

    graph = stored("learns", tmp_path)
    ran, _ = train_on(cluster, graph, heard, "learns", servers=3, mode="async", staleness=1)
    assert len(machines) == 3
    exact = max(each["val_accuracy"] for each in truth("learns", EPOCHS).scores)
    assert max(accuracies) >= exact - 0.005
    assert ran.counters["max_staleness_seen"] <= 1


def test_more_servers_than_there_is_room_for_are_refused_in_time(
    cluster: RayNodes, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ray_actors.ROOM_SECONDS <= 30
    monkeypatch.setattr(ray_actors, "ROOM_SECONDS", 2.0)
    with pytest.raises(SiafuError, match=r"no room for 7 graph servers, one core each, after 2 s \(3 cores"):
        train_on(cluster, graph, servers=7)


def test_the_command_trains_on_a_cluster_and_refuses_what_is_none(
    cluster: RayNodes, graph: Graph, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = {"epochs": 5, "hidden": 8, "servers": 2, "intervals": 3, "json": True}
    good = spawn("train", graph.source, cluster=cluster.address, out=out, **command)
    wrong = spawn("train", graph.source, cluster="127.0.0.1:9", **command)
    try:
        _, said = wrong.communicate(timeout=LONG)
        assert wrong.returncode == 2, said
        assert "no Ray cluster at '127.0.0.1:9'" in said.splitlines()[-1]
        told, said = good.communicate(timeout=LONG)
        assert good.returncode == 0, said
    finally:
        good.kill()
        wrong.kill()
    assert '"epochs": 5' in told.splitlines()[-1]
    logs = {path.name for path in (out / "logs").iterdir()}
    assert logs == {"graph-0.log", "graph-1.log", "weight-0.log"}


def test_embeddings_are_learnt_by_servers_that_ray_places_on_three_nodes(
    cluster: RayNodes, tmp_path: Path
) -> None:
    import_triples(write_families(tmp_path / "families"), tmp_path / "families.store")
    run = siafu.embed(tmp_path / "families.store", servers=3, cluster=cluster.address, **SMALL)
    assert [each.epoch for each in run.history] == [1, 2, 3]
    assert run.summary()["test_mrr"] > 0.1

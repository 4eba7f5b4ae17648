"""A run on many processes that is stopped, or whose driver is killed, goes on as if nothing had been."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import siafu
from siafu.graph import Graph
from siafu.report.files.metrics import EpochMetrics
from tests.cluster.cases import case
from tests.cluster.driver import LAYOUT, Crews
from tests.sessions import StopAt, epochs_in, losses, same_weights, stopped

pytestmark = pytest.mark.slow  # starts servers as processes

LONG = 120.0


@pytest.fixture
def crews(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crews]:
    """Where `siafu.train` looks for a cluster, it finds processes of this machine."""
    made = Crews("gcn")
    monkeypatch.setattr("siafu.cluster.on_ray.ray_crew.RayCrew", made)
    yield made
    for crew in made.made:
        crew.end_all()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    case("gcn").graph.save(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def graph(store: Path) -> Graph:
    return siafu.load(str(store))


def model() -> torch.nn.Module:
    return copy.deepcopy(case("gcn").model)


def undisturbed(graph: Graph, epochs: int) -> siafu.Run:
    """The same run on threads of this process, which gives the same bits."""
    return siafu.train(graph, model(), epochs=epochs, **(LAYOUT | {"cluster": None}))


def wait_until(what: Callable[[], Any], seconds: float = LONG) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.05)


def is_there(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")


class StopOnce(StopAt):
    """Where a server is lost, an epoch may come again: a second signal would end this process."""

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if not self.told:
            super().epoch_ended(metrics)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_signal_saves_a_run_and_it_goes_on_bit_for_bit(
    crews: Crews, graph: Graph, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    progress = StopOnce(4, number)
    assert "saved in" in str(stopped(graph, model(), out, progress, **LAYOUT))
    assert progress.told == [number]
    assert not any(map(is_there, crews.processes()))
    epochs = len(epochs_in(out)) + 5
    resumed = siafu.train(graph, model(), epochs=epochs, out=out, resume=True, **LAYOUT)
    straight = undisturbed(graph, epochs)
    assert losses(resumed) == losses(straight)
    assert same_weights(resumed.model, straight.model)
    assert epochs_in(out) == list(range(1, epochs + 1))
    counted = ("gradients_applied", "bytes_scattered", "staleness_histogram", "row_age_histogram")
    assert {name: resumed.counters[name] for name in counted} == {
        name: straight.counters[name] for name in counted
    }


def test_when_its_driver_is_killed_servers_end_and_the_run_goes_on_bit_for_bit(
    crews: Crews, graph: Graph, store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "tests.cluster.driver", str(store), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        servers = json.loads(driver.stdout.readline())
        assert len(servers) == 4
        wait_until((out / "checkpoint.safetensors").exists)
        driver.kill()
    wait_until(lambda: not any(map(is_there, servers)))
    epochs = len(epochs_in(out)) + 5
    resumed = siafu.train(graph, model(), epochs=epochs, out=out, resume=True, **LAYOUT)
    straight = undisturbed(graph, epochs)
    assert losses(resumed) == losses(straight)
    assert same_weights(resumed.model, straight.model)


def test_a_checkpoint_is_read_by_safetensors_alone_and_logs_are_beside_it(
    crews: Crews, graph: Graph, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run = siafu.train(graph, model(), epochs=4, out=out, **LAYOUT)
    tensors = load_file(out / "checkpoint.safetensors")
    assert {f"model.{name}" for name in run.model.state_dict()} <= tensors.keys()
    assert {name.partition(".")[0] for name in tensors} == {"model", "best", "optimizer"}
    logs = {path.name: path.read_text() for path in (out / "logs").iterdir()}
    assert logs.keys() == {"graph-0.log", "graph-1.log", "weight-0.log", "weight-1.log"}
    assert all("started, life 1" in text for text in logs.values())


def test_a_server_that_is_killed_costs_no_epoch_in_the_runs_files(
    crews: Crews, graph: Graph, tmp_path: Path
) -> None:
    class KillAt(StopAt):
        def __init__(self) -> None:
            super().__init__(3)
            self.lost: list[str] = []

        def epoch_ended(self, metrics: EpochMetrics) -> None:
            if metrics.epoch == 3 and not self.lost:
                os.kill(crews.processes()[0], signal.SIGKILL)

        def rewound(self, epochs: int, lost: str) -> None:
            self.lost.append(lost)

    out, progress = tmp_path / "run", KillAt()
    run = siafu.train(graph, model(), epochs=30, out=out, progress=progress, checkpoint_every=0, **LAYOUT)
    straight = undisturbed(graph, 30)
    assert "graph server 0 was lost" in progress.lost[0]
    assert losses(run) == losses(straight)
    assert same_weights(run.model, straight.model)
    assert epochs_in(out) == list(range(1, 31))
    assert "lost: its process ended with -9" in (out / "logs" / "graph-0.log").read_text()
    assert run.counters["servers_lost"] == 1

"""TensorBoard reads what a run wrote for it."""

import signal
from pathlib import Path
from typing import Any

import pytest

import siafu
from siafu.base.errors import BadInput
from tests.sessions import StopAt, gcn, stopped
from tests.toys import toy_graph

pytest.importorskip("tensorboard")


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard's own reader finds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Any = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_every_epoch_is_there(tmp_path: Path) -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=5, out=tmp_path / "run", tensorboard=True)
    found = scalars(tmp_path / "run")
    assert [step for step, _ in found["loss/training"]] == [1, 2, 3, 4, 5]
    losses = [value for _, value in found["loss/training"]]
    assert losses == pytest.approx([epoch.train_loss for epoch in run.history], rel=1e-6)
    assert {"accuracy/test", "seconds/epoch", "busy seconds/train T0", "staleness/at most"} <= found.keys()


def test_a_resumed_run_has_each_epoch_once(tmp_path: Path) -> None:
    graph, out = toy_graph(), tmp_path / "run"
    stopped(graph, gcn(graph), out, StopAt(3, signal.SIGTERM), tensorboard=True)
    done = len(siafu.read_metrics(out)["epoch"])
    siafu.train(graph, gcn(graph), epochs=done + 2, out=out, resume=True, tensorboard=True)
    assert [step for step, _ in scalars(out)["loss/training"]] == list(range(1, done + 3))


def test_a_run_that_is_not_saved_has_no_place_for_it() -> None:
    with pytest.raises(BadInput, match="name one"):
        siafu.train(toy_graph(), gcn(toy_graph()), epochs=1, tensorboard=True)

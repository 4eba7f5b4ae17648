"""A run that fails leaves its story behind, and one that ends as its user could expect leaves none."""

from pathlib import Path
from typing import Any

import pytest

import siafu
from siafu.errors import Diverged
from siafu.pipeline.events import TaskDone
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.instructions import Instruction
from siafu.report.files.story_file import read_story
from siafu.runtime import local
from tests.toys import toy_graph


class Fails(GraphServer):
    """Fails in its second epoch."""

    def _task_done(self, event: TaskDone, out: list[Instruction]) -> None:
        if event.task.epoch == 1:
            raise RuntimeError("something broke")
        super()._task_done(event, out)


def train(out: Path, **options: Any) -> siafu.Run:
    graph = toy_graph()
    given = {"epochs": 3, "intervals": 2, "checkpoint_every": 0} | options
    return siafu.train(graph, siafu.nn.GCN(graph.num_features, 4, 2, graph.num_classes), out=out, **given)


def test_a_run_that_fails_leaves_its_story_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="something broke") as caught:
        patched.setattr(local, "GraphServer", Fails)
        train(run)
    assert f"siafu story {run}" in caught.value.__notes__[0]
    told = read_story(run / "story.jsonl")
    assert told.why == "RuntimeError: something broke"
    assert "TaskDone" in {each.what for each in told.entries if each.epoch == 2}
    assert any("epoch 2" in line for line in told.waiting)
    assert len(train(run, resume=True).history) == 3
    assert not (run / "story.jsonl").exists()


def test_a_story_that_cannot_be_written_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GraphServer", Fails)
    monkeypatch.setattr("siafu.training.records.failure.write_story", _full)
    with pytest.raises(RuntimeError, match="something broke"):
        train(tmp_path / "run")


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_run_that_diverges_leaves_no_story(tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        train(tmp_path / "run", lr=1e30, optimizer="sgd", epochs=20)
    assert not (tmp_path / "run" / "story.jsonl").exists()


def test_a_new_run_in_the_same_place_has_no_story_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(local, "GraphServer", Fails)
        train(run)
    train(run, overwrite=True)
    assert not (run / "story.jsonl").exists()

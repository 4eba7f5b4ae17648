"""siafu.sweep: each setting as siafu.train does it, failures apart, finished settings kept."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.server import assembly
from siafu.training import sweep as sweeping
from tests.cli.command import Siafu
from tests.toys import toy_graph


def test_each_row_is_what_train_gives_and_one_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    graph = toy_graph()
    settings = [{"hidden": 4, "lr": 0.05}, {"hidden": 4, "heads": 2}, {"hidden": 8, "lr": 0.01}]
    found = siafu.sweep(graph, settings, out=tmp_path, epochs=3, dropout=0.0, seed=2)
    assert [row.error for row in found.rows] == [
        None,
        "BadInput: --heads is for --model gat, gatv2 or transformer: leave it out with gcn",
        None,
    ]
    for row, (hidden, lr) in zip(found.rows[::2], ((4, 0.05), (8, 0.01)), strict=True):
        torch.manual_seed(2)
        model = siafu.nn.GCN(graph.num_features, hidden, 2, graph.num_classes)
        alone = siafu.train(graph, model, epochs=3, lr=lr, seed=2).summary()
        assert row.summary is not None
        assert [row.summary[key] for key in ("train_loss", "val_accuracy")] == [
            alone[key] for key in ("train_loss", "val_accuracy")
        ]
        assert siafu.Run.load(row.path).summary()["train_loss"] == alone["train_loss"]
    assert found.best.summary == max(
        (row.summary for row in found.rows if row.summary), key=lambda each: each["val_accuracy"]
    )
    table = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert table == found.table() and [row["heads"] for row in table] == [None, 2, None]
    with (tmp_path / "sweep.csv").open() as file:
        assert [row["error"] for row in csv.DictReader(file)][0::2] == ["", ""]


def test_finished_settings_are_not_run_again_and_a_stopped_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, trained = toy_graph(), list[dict[str, Any]]()
    real = sweeping.train

    def counted(*arguments: Any, **keywords: Any) -> Any:
        trained.append(keywords)
        return real(*arguments, **keywords)

    monkeypatch.setattr(sweeping, "train", counted)
    grid = {"lr": [0.01, 0.05]}

    def made(graph: Graph, width: int = 4) -> torch.nn.Module:
        torch.manual_seed(0)
        return siafu.nn.GCN(graph.num_features, width, 2, graph.num_classes)

    first = siafu.sweep(graph, {"lr": [0.01]}, out=tmp_path, model=made, epochs=2)
    (first.rows[0].path / "summary.json").unlink()  # as if it had been stopped at its last checkpoint
    both = siafu.sweep(graph, grid, out=tmp_path, model=made, epochs=2)
    assert [each["resume"] for each in trained] == [False, True, False]
    again = siafu.sweep(graph, grid | {"width": [4]}, out=tmp_path / "other", model=made, epochs=2)
    assert [row.reused for row in again.rows] == [False, False]
    reused = siafu.sweep(graph, grid, out=tmp_path, model=made, epochs=2)
    assert len(trained) == 5 and all(row.reused for row in reused.rows)
    assert [row.summary for row in reused.rows] == [row.summary for row in both.rows]
    with pytest.raises(BadInput, match="is a run on another graph"):
        siafu.sweep(toy_graph(seed=9), grid, out=tmp_path, model=made, epochs=2)


def test_refusals(tmp_path: Path) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="there is no setting width: settings are keywords"):
        siafu.sweep(graph, {"width": [1]}, out=tmp_path)
    with pytest.raises(BadInput, match="out is of one run"):
        siafu.sweep(graph, [{"out": "a"}], out=tmp_path)
    with pytest.raises(BadInput, match=r"the values of lr are 0.1: give a list"):
        siafu.sweep(graph, {"lr": 0.1}, out=tmp_path)  # type: ignore[dict-item]
    assert not list(tmp_path.iterdir())


def test_the_command_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    toy_graph().save("toy")
    command = Siafu(monkeypatch, capfd)
    words = (
        "sweep",
        "toy",
        "--vary",
        "hidden=4,8",
        "--vary",
        "model=gcn,sage",
        "--epochs",
        "2",
        "--out",
        "all",
    )
    done = command(*words)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:3] == ["hidden", "model", "val_accuracy"]
    assert len(done.out.splitlines()) == 6 and done.out.splitlines()[-1].startswith("best: hidden ")
    again = command(*words, "--json")
    rows = again.json()["rows"]
    assert again.err.count("(was there)") == 4
    assert [(row["hidden"], row["model"]) for row in rows] == [
        (4, "gcn"),
        (4, "sage"),
        (8, "gcn"),
        (8, "sage"),
    ]
    assert "no option hiden to vary: did you mean hidden?" in command.refused(
        "sweep", "toy", "--vary", "hiden=4"
    )
    assert "lr is -1" in command.refused("sweep", "toy", "--vary", "lr=-1")
    assert "say what varies" in command.refused("sweep", "toy")


def test_a_second_sweep_in_a_directory_leaves_the_rows_of_the_first_in_the_table(tmp_path: Path) -> None:
    graph = toy_graph()
    common: dict[str, Any] = {"out": tmp_path, "epochs": 1, "dropout": 0.0}
    siafu.sweep(graph, {"hidden": [4, 8]}, **common)
    siafu.sweep(graph, {"lr": [0.1], "hidden": [4]}, **common)
    siafu.sweep(graph, {"hidden": [8]}, **common)
    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert [(row.get("hidden"), row.get("lr")) for row in rows] == [(8, None), (4, 0.1), (4, None)]
    with (tmp_path / "sweep.csv").open() as file:
        assert [row["lr"] for row in csv.DictReader(file)] == ["", "0.1", ""]


def test_a_second_sweep_that_would_run_beside_the_first_is_refused(tmp_path: Path) -> None:
    graph, told = toy_graph(), list[str]()

    def second(_: object) -> None:
        with pytest.raises(BadInput) as refused:
            siafu.sweep(graph, {"hidden": [4, 8]}, out=tmp_path, epochs=1, dropout=0.0)
        told.append(str(refused.value))

    found = siafu.sweep(graph, {"hidden": [4]}, out=tmp_path, epochs=1, dropout=0.0, told=second)
    assert told == [f"another process is training in {tmp_path}: wait for it, or choose another --out"]
    assert len(json.loads((tmp_path / "sweep.json").read_text())["rows"]) == 1
    with pytest.raises(BadInput, match="holds a run: name another directory"):
        siafu.sweep(graph, {"hidden": [4]}, out=found.rows[0].path, epochs=1)


def test_rows_that_are_computed_once_are_shared_by_the_runs_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = toy_graph()
    made = []
    plain = assembly.constant_rows
    monkeypatch.setattr(
        assembly,
        "constant_rows",
        lambda *given: made.append(1) or plain(*given),  # type: ignore[func-returns-value]
    )
    settings = {"hidden": [4, 6], "normalize_features": [False, True]}
    found = siafu.sweep(graph, settings, out=tmp_path / "swept", epochs=2, dropout=0.0)
    assert len(made) == 2, "the features as they are, and divided by the sums of their rows"
    for row in found.rows:
        alone = siafu.sweep(graph, [row.setting], out=tmp_path / "alone", epochs=2, dropout=0.0).rows[0]
        assert row.summary is not None and alone.summary is not None
        assert row.summary["train_loss"] == alone.summary["train_loss"]

"""`--objective`: what is learnt, by name."""

import csv
import json
from pathlib import Path

import pytest
from torch import Tensor

from siafu.objective.metric import Metric
from siafu.objective.registry import OBJECTIVES
from siafu.objective.vertex_classes import VertexClasses
from tests.cli.command import Siafu


class _ErrorRate(VertexClasses):
    """Classes, judged by the share that is wrong."""

    name = "errors"
    metric = Metric("error_rate", larger_is_better=False)

    def measure(self, *counts: float) -> float:
        return 1 - super().measure(*counts)

    def probabilities(self, out: Tensor) -> Tensor:
        return super(VertexClasses, self).probabilities(out)


@pytest.mark.slow
def test_an_objective_by_name_is_trained_evaluated_and_predicted(
    siafu: Siafu, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBJECTIVES, "errors", _ErrorRate())
    trained = siafu("train", store, objective="errors", epochs=4, out="run", json=True)
    assert trained.code == 0, trained
    assert "validation error-rate" in trained.err
    history = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    lowest = min(history, key=lambda epoch: (epoch["val_accuracy"], epoch["val_loss"]))
    assert trained.json()["best_epoch"] == lowest["epoch"]
    evaluated = siafu("evaluate", "run", json=True).json()
    assert evaluated["metric"] == "error_rate"
    assert evaluated["val_accuracy"] == lowest["val_accuracy"]
    assert siafu("predict", "run", output="p.csv").code == 0
    with Path("p.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 210
    assert "no probabilities" in siafu.refused("predict", "run", probabilities=True)


def test_an_unknown_objective_is_refused_before_the_data_is_read(siafu: Siafu) -> None:
    assert siafu.refused("train", "demo", objective="nonsense") == (
        "siafu: unknown objective 'nonsense': choose one of classes, labels, regression"
    )


def test_an_objective_that_is_not_for_the_graph_leaves_no_run(siafu: Siafu, store: Path) -> None:
    line = siafu.refused("train", store, objective="labels", out="run")
    assert "objective labels wants a column" in line
    assert not Path("run").exists()

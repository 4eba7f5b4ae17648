"""An objective that this file alone knows: the number of a class as a quantity, judged by an error that should be small.

Nothing of Siafu is changed for it. Its losses, best epoch, weights and predictions are those of plain PyTorch.
"""

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu import Graph, Run
from siafu.base.errors import BadInput
from siafu.dashboard.run_state import RunWatch
from siafu.nn import features
from siafu.objective.metric import Metric
from siafu.objective.objective import Objective
from siafu.objective.registry import OBJECTIVES
from siafu.objective.vertex_classes import VertexClasses
from siafu.report.files.run_record import read_run
from siafu.report.pages.comparison import compare
from siafu.report.pages.figures import figures
from tests.toys import toy_graph

_EPOCHS = 30


class ClassNumber(Objective):
    """The mean absolute error of a class's number, where each vertex counts 1 + number times in the loss."""

    name = "class_number"
    metric = Metric("mean_error", larger_is_better=False, is_share=False)
    counted = ("errors", "rows")

    def target(self, graph: Graph) -> Tensor:
        return super().target(graph).double()

    def outputs(self, graph: Graph) -> int:
        return 1

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return ((1 + y) * (out.squeeze(1) - y).abs()).sum()

    def terms(self, y: Tensor) -> float:
        return float((1 + y).sum())

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        return float((out.squeeze(1) - y).abs().sum()), len(out)

    def measure(self, *counts: float) -> float:
        errors, rows = counts
        return errors / rows

    def answers(self, out: Tensor) -> Tensor:
        return out.squeeze(1)


@dataclass
class Plain:
    """A training in plain PyTorch.

    losses, val_losses, val_errors: of each epoch
    predictions: of each epoch's model, [V]
    """

    losses: list[float] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    val_errors: list[float] = field(default_factory=list)
    predictions: list[Tensor] = field(default_factory=list)

    @property
    def best(self) -> int:
        return min(range(len(self.val_errors)), key=self.val_errors.__getitem__)


def _plainly(graph: Graph, model: nn.Module) -> Plain:
    model, found = copy.deepcopy(model), Plain()
    x, y = features(graph).double(), torch.from_numpy(graph.y).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def loss_of(out: Tensor, rows: Any) -> Tensor:
        weight = 1 + y[rows]
        return (weight * (out[rows, 0] - y[rows]).abs()).sum() / weight.sum()

    for _ in range(_EPOCHS):
        optimizer.zero_grad()
        loss = loss_of(model(graph, x), graph.train)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            out = model(graph, x)
        found.losses.append(loss.item())
        found.val_losses.append(loss_of(out, graph.val).item())
        found.val_errors.append((out[graph.val, 0] - y[graph.val]).abs().mean().item())
        found.predictions.append(out[:, 0])
    return found


def _model(graph: Graph) -> nn.Module:
    torch.manual_seed(0)
    return siafu.nn.GCN(graph.num_features, 8, 2, 1, dropout=0.0).double()


def _train(graph: Graph, model: nn.Module, **options: Any) -> Run:
    chosen = {"epochs": _EPOCHS, "lr": 0.1, "weight_decay": 0.0, "objective": ClassNumber()} | options
    return siafu.train(graph, model, **chosen)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return toy_graph(120, 3)


@pytest.fixture(scope="module")
def plain(graph: Graph) -> Plain:
    found = _plainly(graph, _model(graph))
    assert 0 < found.best < _EPOCHS - 1, "the best epoch is one that only its error tells"
    return found


@pytest.mark.parametrize(
    "layout",
    [
        {"mode": "sync", "servers": 1, "intervals": 1},
        {"mode": "pipe", "servers": 2, "intervals": 3},
        pytest.param(
            {"servers": 2, "intervals": 2, "lambdas": "local", "lambda_count": 2}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda layout: "-".join(map(str, layout.values())),
)
@pytest.mark.slow
def test_it_is_learnt_as_in_plain_pytorch(graph: Graph, plain: Plain, layout: dict[str, Any]) -> None:
    run = _train(graph, _model(graph), **layout)
    assert [epoch.train_loss for epoch in run.history] == pytest.approx(plain.losses, rel=1e-9)
    assert [epoch.val_loss for epoch in run.history] == pytest.approx(plain.val_losses, rel=1e-9)
    assert [epoch.val_accuracy for epoch in run.history] == pytest.approx(plain.val_errors, rel=1e-9)
    assert run.summary()["best_epoch"] == plain.best + 1
    # Lambdas of this machine compute with NumPy; a model is asked in the type of its features.
    assert torch.allclose(run.predict(graph).double(), plain.predictions[plain.best].double(), rtol=1e-5)


def test_an_evaluation_says_what_the_best_epoch_measured(graph: Graph) -> None:
    run = _train(graph, _model(graph))
    found, best = run.evaluate(graph)["val"], run.summary()
    assert found["loss"] == pytest.approx(best["val_loss"], rel=1e-5)
    assert found["accuracy"] == pytest.approx(best["val_accuracy"], rel=1e-5)
    assert (best["metric"], best["objective"]["name"]) == ("mean_error", "class_number")
    assert "mean_error" in repr(run)


def test_patience_waits_for_a_lower_error(graph: Graph, plain: Plain) -> None:
    run = _train(graph, _model(graph), patience=3)
    errors = plain.val_errors
    worse = (k for k in range(_EPOCHS) if k - min(range(k + 1), key=errors.__getitem__) >= 3)
    assert len(run.history) == next(worse) + 1 < _EPOCHS


@pytest.mark.slow
def test_a_run_in_two_sessions_has_the_same_best_epoch(graph: Graph, plain: Plain, tmp_path: Path) -> None:
    _train(graph, _model(graph), epochs=plain.best + 2, out=tmp_path / "run")
    run = _train(graph, _model(graph), out=tmp_path / "run", resume=True)
    assert run.summary()["best_epoch"] == plain.best + 1
    whole = _train(graph, _model(graph))
    assert torch.equal(run.predict(graph), whole.predict(graph))


@pytest.fixture(scope="module")
def saved(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    _train(graph, _model(graph), out=path)
    return path


@pytest.mark.slow
def test_readers_that_do_not_know_it_find_the_best_epoch(saved: Path, plain: Plain) -> None:
    assert read_run(saved).best.epoch == plain.best + 1
    state = RunWatch(saved, "id", "run").look()
    assert state.best_epoch == plain.best + 1
    assert (state.metric, state.metric_words, state.metric_unit) == ("mean_error", "mean-error", "number")


def test_pages_show_its_metric_as_a_number(saved: Path, plain: Plain) -> None:
    run = read_run(saved)
    error = f"{plain.val_errors[plain.best]:.4f}"
    assert ("validation mean-error", error) in figures(run)
    assert ("validation mean-error", [error, error]) in compare([run, run]).results


def test_the_config_records_it(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    assert config["training"]["objective"] == "class_number"
    assert config["objective"] == {
        "name": "class_number",
        "metric": "mean_error",
        "larger_is_better": False,
        "is_share": False,
    }


def test_a_saved_run_is_loaded_with_it(graph: Graph, saved: Path) -> None:
    run = Run.load(saved, objective=ClassNumber())
    assert run.predict(graph).shape == (graph.num_vertices,)
    with pytest.raises(BadInput, match="objective 'class_number', which is not one of siafu's"):
        Run.load(saved)


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_objective_only(graph: Graph, saved: Path) -> None:
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
    with pytest.raises(BadInput, match="cannot resume"):
        _train(graph, model, out=saved, resume=True, objective="classes")


@pytest.mark.slow
def test_a_registered_one_is_found_by_its_name(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "class_number", ClassNumber())
    named = _train(graph, _model(graph), epochs=2, objective="class_number")
    given = _train(graph, _model(graph), epochs=2)
    assert [each.train_loss for each in named.history] == [each.train_loss for each in given.history]


class _Flawed(VertexClasses):
    """An objective with a mistake in it."""

    name = "flawed"

    def __init__(self, **wrong: Any) -> None:
        self.__dict__.update(wrong)


@pytest.mark.parametrize(
    ("objective", "refusal"),
    [
        (_Flawed(loss=lambda out, y: nn.functional.cross_entropy(out, y)), "sum the rows' losses"),
        (_Flawed(loss=lambda out, y: out.sum(1)), "a loss of 1 dimensions: a loss is one number"),
        (_Flawed(loss=lambda out, y: out.amax(0).sum()), "the loss's amax mixes the rows"),
        (_Flawed(count=lambda out, y: (1.0,)), "counts 1 sums and names 2"),
        (_Flawed(measure=lambda hits, tries: float("nan")), r"accuracy is nan over \d+ rows \(hits"),
        (_Flawed(target=lambda graph: torch.zeros(3)), r"a target of \[3\]: give a tensor with a row for"),
        (_Flawed(target=lambda graph: torch.zeros(120, dtype=torch.int32)), "a target of torch.int32"),
        (_Flawed(terms=lambda y: 0.0), r"divides the training rows' losses by 0\.0: let `terms`"),
        (_Flawed(outputs=lambda graph: 5), "build it with out_channels=5"),
        ("nonsense", "unknown objective 'nonsense': choose one of classes, labels, regression"),
    ],
    ids=["mean", "rows", "mixed", "counts", "nan", "short", "int32", "terms", "width", "name"],
)
@pytest.mark.slow
def test_a_mistake_in_it_is_one_clear_line(graph: Graph, objective: Any, refusal: str) -> None:
    model = siafu.nn.GCN(graph.num_features, 4, 2, graph.num_classes)
    with pytest.raises(BadInput, match=refusal) as refused:
        siafu.train(graph, model, epochs=2, objective=objective)
    assert "\n" not in str(refused.value)

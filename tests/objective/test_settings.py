"""Class weights, label smoothing, regression and a user's own functions, against PyTorch's losses."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import siafu
from siafu.base.errors import BadInput
from siafu.objective.own import OwnObjective
from siafu.objective.registry import objective_for
from siafu.objective.regression import Regression
from siafu.objective.vertex_classes import VertexClasses
from tests.sessions import losses
from tests.toys import multi_label_graph, toy_graph

LAYOUT: dict[str, Any] = {"servers": 2, "intervals": 2, "partition": "hash"}


def model_for(graph: siafu.Graph, outputs: int | None = None) -> nn.Module:
    torch.manual_seed(2)
    return siafu.nn.GCN(graph.num_features, 8, 2, outputs or graph.num_classes).double()


def plain_losses(
    graph: siafu.Graph, model: nn.Module, loss_of: Any, y: Tensor, epochs: int = 4
) -> list[float]:
    """Losses of a loop in plain PyTorch."""
    model, rows = copy.deepcopy(model), torch.from_numpy(graph.train)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = loss_of(model(graph, siafu.nn.features(graph).double())[rows], y[rows])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, [1.0, 0.2, 3.0], "balanced"], ids=str)
@pytest.mark.slow
def test_class_weights_and_smoothing_are_torchs(weights: Any, smoothing: float) -> None:
    graph = toy_graph()
    y, model = torch.from_numpy(graph.y), model_for(graph)
    counts = torch.bincount(y[torch.from_numpy(graph.train)], minlength=3).double()
    given = len(graph.train) / (3 * counts) if weights == "balanced" else weights
    theirs = nn.CrossEntropyLoss(
        None if given is None else torch.as_tensor(given, dtype=torch.float64), label_smoothing=smoothing
    )
    wanted = plain_losses(graph, model, theirs, y)
    asked: dict[str, Any] = {"class_weights": weights, "label_smoothing": smoothing, "weight_decay": 0.0}
    run = siafu.train(graph, copy.deepcopy(model), epochs=4, **asked, **LAYOUT)
    assert losses(run) == pytest.approx(wanted, rel=1e-9)
    hits = (run.predict(graph)[graph.val] == y[graph.val]).double().mean().item()
    assert run.summary()["val_accuracy"] == pytest.approx(hits)
    with torch.no_grad():
        assert run.evaluate(graph)["test"]["loss"] == pytest.approx(
            theirs(run.logits(graph)[graph.test], y[graph.test]).item(), rel=1e-9
        )


@pytest.mark.slow
def test_a_run_that_is_loaded_knows_its_weights(tmp_path: Path) -> None:
    graph = toy_graph()
    asked: dict[str, Any] = {"class_weights": "balanced", "label_smoothing": 0.1}
    model = siafu.nn.GCN(graph.num_features, 4, 2, 3)
    run = siafu.train(graph, model, epochs=2, out=tmp_path / "run", **asked)
    assert siafu.Run.load(tmp_path / "run").evaluate(graph) == run.evaluate(graph)


@pytest.mark.parametrize(
    ("error", "theirs"), [("mse", nn.MSELoss()), ("mae", nn.L1Loss()), ("huber", nn.SmoothL1Loss())]
)
@pytest.mark.slow
def test_regression_is_torchs(error: str, theirs: nn.Module) -> None:
    graph = toy_graph()
    values = np.random.default_rng(0).normal(size=(graph.num_vertices, 2))
    model, y = model_for(graph, 2), torch.from_numpy(values)
    run = siafu.train(
        graph,
        copy.deepcopy(model),
        objective=Regression(values, error),
        epochs=4,
        weight_decay=0.0,
        **LAYOUT,
    )
    assert losses(run) == pytest.approx(plain_losses(graph, model, theirs, y), rel=1e-9)
    missed = (run.predict(graph) - y)[torch.from_numpy(graph.val)]
    assert run.summary()["val_accuracy"] == pytest.approx(missed.square().mean().sqrt().item())
    assert run.summary()["val_accuracy"] == min(each.val_accuracy for each in run.history)


@pytest.mark.slow
def test_a_users_loss_and_metric_are_learnt_and_judged_by() -> None:
    graph = toy_graph()
    model, y = model_for(graph), torch.from_numpy(graph.y)

    def focal(rows: Tensor, classes: Tensor) -> Tensor:
        log = F.log_softmax(rows, 1)
        return -((1 - log.exp()) ** 2 * log * classes).sum(1)

    own = OwnObjective(
        focal,
        lambda rows, classes: (rows.argmax(1) == classes.argmax(1)).double(),
        target=F.one_hot(y).double(),
        answers=lambda rows: rows.argmax(1),
    )
    run = siafu.train(graph, copy.deepcopy(model), objective=own, epochs=4, weight_decay=0.0, **LAYOUT)
    wanted = plain_losses(graph, model, lambda rows, t: focal(rows, t).mean(), F.one_hot(y).double())
    assert losses(run) == pytest.approx(wanted, rel=1e-9)
    hits = (run.predict(graph)[graph.val] == y[graph.val]).double().mean().item()
    assert run.summary()["val_accuracy"] == pytest.approx(hits)


@pytest.mark.slow
def test_a_loss_that_is_a_sum_will_do_and_judges_if_there_is_no_metric() -> None:
    graph = toy_graph()
    own = OwnObjective(lambda rows, y: F.cross_entropy(rows, y, reduction="sum"))
    run = siafu.train(graph, model_for(graph), objective=own, epochs=3)
    plain = siafu.train(graph, model_for(graph), epochs=3)
    assert losses(run) == losses(plain)
    assert run.summary()["val_accuracy"] == pytest.approx(run.summary()["val_loss"])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"class_weights": "even"}, "class_weights is 'even': give balanced, or a number for each class"),
        ({"class_weights": [1.0, 2.0]}, "class_weights has 2 numbers, and graph 'toy' 3 classes"),
        ({"class_weights": [1.0, -1, 1]}, "give numbers from 0 up"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0: give a share from 0 up to, not at, 1"),
        (
            {"objective": "regression", "label_smoothing": 0.1},
            "is for objective classes, and this one is regression",
        ),
        (
            {"objective": OwnObjective(lambda r, y: F.cross_entropy(r, y))},
            "not twice the loss: let it give a number",
        ),
        (
            {"objective": OwnObjective(lambda r, y: r)},
            r"your loss gives \[3, 3\] for 3 rows: let it give one number",
        ),
        ({"objective": Regression(np.zeros(7))}, "values has 7 rows, and graph 'toy' 210 vertices"),
        ({"objective": Regression(np.full(210, np.nan))}, "values has numbers that are not finite"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], told: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=told):
        siafu.train(graph, siafu.nn.GCN(graph.num_features, 4, 2, 3), epochs=1, **asked)


def test_settings_that_are_none_are_refused_when_made() -> None:
    with pytest.raises(BadInput, match="unknown error 'rms': choose one of mse, mae, huber"):
        Regression(error="rms")
    with pytest.raises(BadInput, match="loss is a str: give a function"):
        OwnObjective("mse")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="class_weights is for objective classes, and this one is labels"):
        siafu.train(multi_label_graph(), siafu.nn.GCN(8, 4, 2, 4), class_weights="balanced")
    assert isinstance(objective_for(toy_graph(), VertexClasses("balanced")), VertexClasses)

"""Trainings in every precision: near to float32, the same bits in both modes, and a trial that decides."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import siafu
from siafu.base.errors import BadInput
from siafu.nn.precision import asked_precision, set_precision
from siafu.options import Options
from siafu.training import precision_choice
from siafu.training.precision_choice import PrecisionTrial, choose_precision, decided, tried
from tests.toys import toy_graph


class _PygModel(nn.Module):
    """As PyG's users write it: it knows nothing of precisions."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 16), GCNConv(16, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.second(torch.relu(self.first(x, edge_index)), edge_index)
        return found


def _losses(model: nn.Module, graph: siafu.Graph, **asked: object) -> list[float]:
    run = siafu.train(graph, model, epochs=8, seed=3, **asked)  # type: ignore[arg-type]
    return [each.train_loss for each in run.history]


@pytest.mark.parametrize("kind", [siafu.nn.GCN, siafu.nn.GraphSAGE, siafu.nn.GAT])
def test_mixed_is_near_to_float32_and_the_same_in_both_modes(kind: type[siafu.nn.GNN]) -> None:
    graph = toy_graph(200)

    def trained(precision: str, mode: str, intervals: int) -> list[float]:
        torch.manual_seed(0)
        model = kind(graph.num_features, 16, 2, graph.num_classes, dropout=0.5, precision=precision)  # type: ignore[arg-type]
        return _losses(model, graph, mode=mode, intervals=intervals)

    plain, mixed = trained("fp32", "pipe", 3), trained("mixed", "pipe", 3)
    assert mixed == trained("mixed", "sync", 3)
    assert mixed != plain
    assert mixed == pytest.approx(plain, rel=0.02)


def test_a_pyg_model_trains_in_the_precision_that_is_asked_for(tmp_path: Path) -> None:
    graph = toy_graph(120)

    def trained(**asked: object) -> tuple[nn.Module, list[float]]:
        torch.manual_seed(0)
        model = _PygModel(graph.num_features, graph.num_classes)
        return model, _losses(model, graph, **asked)

    (_, plain), (model, mixed) = trained(), trained(precision="mixed", out=tmp_path / "run")
    assert asked_precision(model) == "mixed"
    assert mixed != plain
    assert mixed == pytest.approx(plain, rel=0.02)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["precision"] == "mixed"


def test_set_precision_reaches_every_layer_and_what_is_saved() -> None:
    model = siafu.nn.GAT(8, 16, 2, 3)
    set_precision(model, "mixed")
    assert model.config()["precision"] == "mixed"
    assert {layer.gather.precision for layer in model.convs} == {"mixed"}  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="choose fp32, bf16 or mixed"):
        set_precision(model, "fp8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("losses", "seconds", "chosen", "words"),
    [
        ((2.0, 1.9), 0.5, "mixed", "2.00 times as fast"),
        ((2.0, 1.9), 0.99, "fp32", "not worth it"),
        ((2.0, 1.8), 0.5, "fp32", "too much"),
        ((2.0, math.nan), 0.5, "fp32", "too much"),
    ],
)
def test_a_trial_decides_by_losses_and_seconds(
    losses: tuple[float, ...], seconds: float, chosen: str, words: str
) -> None:
    found = decided(PrecisionTrial((2.0, 1.901), 1.0), PrecisionTrial(losses, seconds))
    assert found.precision == chosen
    assert found.reason is not None
    assert words in found.reason


def test_a_trial_leaves_the_model_as_it_was() -> None:
    graph = toy_graph(80)
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    found = tried(graph, model, "mixed", Options(epochs=100), None)
    assert len(found.losses) == 4
    assert found.losses[-1] < found.losses[0]
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert asked_precision(model) is None


def test_what_cannot_be_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = toy_graph(40)
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)

    def chosen(epochs: int, *, on_cluster: bool = False, mode: str = "pipe") -> str:
        options = Options(epochs=epochs, mode=mode)
        found = choose_precision(graph, model, "auto", options, on_cluster=on_cluster, memory=None)
        assert found.precision == "fp32"
        assert found.reason is not None
        return found.reason

    assert "from 80 epochs on" in chosen(79)
    assert "of one process" in chosen(200, on_cluster=True)
    assert "whole graph" in chosen(200, mode="sampled")
    monkeypatch.setattr(precision_choice, "simd_features", lambda: ["avx2"])
    assert "no instructions" in chosen(200)
    with pytest.raises(BadInput, match="choose fp32, bf16, mixed or auto"):
        choose_precision(graph, model, "fp8", Options(), on_cluster=False, memory=None)


def test_auto_trains_and_goes_on_with_what_it_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = toy_graph(60)
    monkeypatch.setattr(precision_choice, "simd_features", lambda: ["avx512bf16"])
    monkeypatch.setattr(
        precision_choice, "decided", lambda plain, mixed: precision_choice.PrecisionChoice("mixed", "so")
    )
    for epochs, resume in ((80, False), (81, True)):
        torch.manual_seed(0)
        model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
        asked = {"epochs": epochs, "out": tmp_path / "run", "resume": resume, "precision": "auto"}
        siafu.train(graph, model, **asked)  # type: ignore[arg-type]
        assert model.precision == "mixed"
        monkeypatch.setattr(precision_choice, "tried", None)  # a run that goes on tries nothing again

"""Norms over all vertices: trained in parts, a model comes out as if it had been trained in one piece by plain PyTorch."""

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu import Graph
from siafu.nn import GCNConv, features
from tests.oracle import History, train_plainly
from tests.test_exactness import assert_same_bits
from tests.training_runs import Trained, tangled_graph, train_in_pipeline

EPOCHS = 4
# The gradient of a bias before a norm is zero but for rounding, which Adam would make as large as any other.
SETTINGS = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 1e-3, "seed": 7}


class Centred(nn.Module):
    """Statistics of every sort: of features, of gathered rows, of rows that edges read as well, of all numbers, across layers,
    and norms that are called several times."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(channels, 8), GCNConv(8, 8)
        self.norms = nn.ModuleList([nn.BatchNorm1d(channels, momentum=None), nn.BatchNorm1d(8, affine=False)])
        self.plain = nn.BatchNorm1d(8, track_running_stats=False)
        self.last = nn.Linear(8, classes)

    def forward(self, graph: Graph, x: Tensor | None = None) -> Tensor:
        rows = self.norms[0](features(graph).to(self.last.weight.dtype) if x is None else x)
        rows = self.norms[0](torch.tanh(rows))
        hidden = torch.tanh(self.first(graph, rows))
        centre = hidden.mean(0)
        found = self.second(graph, self.norms[1](hidden) + self.norms[1](hidden * hidden))
        found = self.norms[1](torch.tanh(found))
        found = self.plain(found) / (found.std(unbiased=False) + found.var(0).sum() + 1)
        return self.last(found + 0.1 * centre) * (1 + hidden.sum() / hidden.shape[0] ** 2)


def batch_normed(graph: Graph, dropout: float) -> nn.Module:
    torch.manual_seed(3)
    made: nn.Module = siafu.nn.GCN(
        graph.num_features, 8, 3, graph.num_classes, dropout, norm="batch_norm", residual=True
    )
    return made


def own(graph: Graph) -> nn.Module:
    torch.manual_seed(3)
    return Centred(graph.num_features, graph.num_classes)


@functools.cache
def case(name: str) -> tuple[Graph, nn.Module, History]:
    graph = tangled_graph()
    model = own(graph) if name == "own" else batch_normed(graph, 0.4)
    truth = train_plainly(graph, model, epochs=EPOCHS, dtype=torch.float64, **SETTINGS)
    return graph, model.double(), truth


def assert_exact(found: Trained, truth: History) -> None:
    np.testing.assert_allclose(found.losses, truth.losses, rtol=1e-9)
    assert found.weights.keys() == truth.weights.keys()
    for name, weight in truth.weights.items():
        torch.testing.assert_close(found.weights[name], weight, rtol=1e-9, atol=1e-9, msg=name)


def trained(name: str, **how: Any) -> Trained:
    graph, model, _ = case(name)
    return train_in_pipeline(graph, copy.deepcopy(model), epochs=EPOCHS, **(SETTINGS | how))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch norm", "own"])
@pytest.mark.parametrize("servers", [1, 2, 3, 5])
def test_sync_and_pipe_are_the_oracles_bit_for_bit_alike(name: str, servers: int) -> None:
    one = trained(name, mode="sync", servers=servers, intervals=3)
    assert_exact(one, case(name)[2])
    assert_same_bits(one, trained(name, mode="pipe", servers=servers, intervals=3))


def test_intervals_do_not_matter() -> None:
    for intervals in (1, 7):
        assert_exact(
            trained("batch norm", mode="pipe", servers=2, intervals=intervals), case("batch norm")[2]
        )


def test_evaluations_use_the_running_statistics_after_the_epoch() -> None:
    graph, model, truth = case("batch norm")
    run = siafu.train(graph, copy.deepcopy(model), epochs=EPOCHS, mode="pipe", servers=2, **SETTINGS)
    for found, wanted in zip(run.history, truth.scores, strict=True):
        np.testing.assert_allclose(found.val_loss, wanted["val_loss"], rtol=1e-9)


@pytest.mark.slow
def test_lambdas_compute_the_same() -> None:
    found = trained("batch norm", mode="pipe", servers=2, lambdas="local", lambda_count=2)
    assert_exact(found, case("batch norm")[2])


def test_a_run_that_is_resumed_goes_on_bit_for_bit(tmp_path: Path) -> None:
    graph, model, _ = case("batch norm")
    how: dict[str, Any] = {"mode": "pipe", "servers": 2, "intervals": 2, **SETTINGS}
    whole = siafu.train(graph, copy.deepcopy(model), epochs=4, out=tmp_path / "whole", **how)
    siafu.train(graph, copy.deepcopy(model), epochs=2, out=tmp_path / "parts", checkpoint_every=2, **how)
    parts = siafu.train(graph, copy.deepcopy(model), epochs=4, out=tmp_path / "parts", resume=True, **how)
    assert [each.train_loss for each in parts.history] == [each.train_loss for each in whole.history]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(parts.model.state_dict()[name], tensor), name


def test_in_single_precision_it_is_close_to_torch() -> None:
    graph, model, _ = case("batch norm")
    single = copy.deepcopy(model).float()
    truth = train_plainly(graph, single, epochs=2, **SETTINGS)
    found = train_in_pipeline(graph, single, epochs=2, mode="pipe", servers=2, **SETTINGS)
    np.testing.assert_allclose(found.losses, truth.losses, rtol=1e-5)


def test_asynchronous_statistics_are_exact_in_the_first_epoch() -> None:
    found = trained("batch norm", mode="async", servers=2, intervals=3)
    np.testing.assert_allclose(found.losses[0], case("batch norm")[2].losses[0], rtol=1e-9)
    assert found.losses[-1] < found.losses[0]

"""Trained in parts, `sync` or `pipe`, a model comes out as if it had been trained in one piece by plain PyTorch."""

import copy
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import siafu
from siafu import Graph, nn
from siafu.graph.partition import Partition
from tests.oracle import History, train_plainly
from tests.training_runs import Gated, Programs, Trained, compiled, tangled_graph, train_in_pipeline

EPOCHS = 12
MODELS: dict[str, tuple[type[nn.GNN], dict[str, Any]]] = {
    "gcn": (nn.GCN, {}),
    "gat": (nn.GAT, {"heads": 2}),
    "sage": (nn.GraphSAGE, {}),
    "gin": (nn.GIN, {}),
    "user": (Gated, {}),
}
SETTINGS = {"lr": 0.02, "weight_decay": 1e-3, "seed": 7}


@dataclass(frozen=True, slots=True)
class Case:
    """A model in double precision and what it comes to in one piece."""

    graph: Graph
    model: nn.GNN
    truth: History
    programs: Programs

    def train(self, **how: Any) -> Trained:
        quick = {"epochs": EPOCHS, "evaluate_every": EPOCHS, "programs": self.programs, **SETTINGS}
        return train_in_pipeline(self.graph, self.model, **(quick | how))


def build(name: str, graph: Graph, layers: int, dropout: float, **options: Any) -> nn.GNN:
    torch.manual_seed(3)
    kind, fixed = MODELS[name]
    return kind(graph.num_features, 8, layers, graph.num_classes, dropout, **fixed, **options)


def case_of(graph: Graph, model: nn.GNN, **settings: Any) -> Case:
    truth = train_plainly(graph, model, epochs=EPOCHS, dtype=torch.float64, **(SETTINGS | settings))
    double = copy.deepcopy(model).double()
    return Case(graph, double, truth, compiled(graph, double))


@functools.cache
def case(name: str, layers: int, dropout: float) -> Case:
    graph = tangled_graph(weighted=name == "gcn")
    return case_of(graph, build(name, graph, layers, dropout))


def assert_exact(found: Trained, truth: History) -> None:
    np.testing.assert_allclose(found.losses, truth.losses, rtol=1e-9)
    assert found.weights.keys() == truth.weights.keys()
    for name, weight in truth.weights.items():
        assert distance(found.weights[name], weight) < 1e-9, name


def assert_same_bits(one: Trained, other: Trained) -> None:
    assert one.losses == other.losses
    assert all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)


def distance(found: Tensor, true: Tensor) -> float:
    """The largest difference, relative to the largest entry; where all are zero, so must be what was found."""
    return float((found.double() - true).abs().max() / true.abs().max().clamp(min=1e-300))


SHALLOW = [  # every two of dropout, servers and intervals meet
    (2, 0.5 * ((place + turn) % 2), servers, intervals)
    for place, servers in enumerate((1, 2, 3, 5))
    for turn, intervals in enumerate((1, 4, 7))
]
DEEP = [(4, 0.5, 2, 4), (4, 0.5, 3, 7), (4, 0.0, 5, 4)]
QUICK = [(2, 0.5, 1, 4), (2, 0.5, 2, 1), (2, 0.0, 3, 7)]
LAYOUTS = QUICK + [
    pytest.param(*each, marks=pytest.mark.slow) for each in SHALLOW + DEEP if each not in QUICK
]


@pytest.mark.parametrize(("layers", "dropout", "servers", "intervals"), LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_sync_and_pipe_give_the_oracles_losses_and_weights(
    name: str, layers: int, dropout: float, servers: int, intervals: int
) -> None:
    given = case(name, layers, dropout)
    layout = {
        "servers": servers,
        "intervals": intervals,
        # Everyone reads from everyone, or few from few: `pipe` then runs far apart.
        "partition": "contiguous" if servers == 5 else "hash",
        "weight_servers": 1 + (servers + intervals) % 3,
    }
    sync, pipe = (given.train(mode=mode, **layout) for mode in ("sync", "pipe"))
    assert_exact(sync, given.truth)
    assert_same_bits(sync, pipe)


@pytest.mark.parametrize("mode", ["sync", "pipe"])
@pytest.mark.slow
def test_repeated_runs_have_the_same_bits(mode: str) -> None:
    given = case("gat", 2, 0.5)
    first, again = (given.train(mode=mode, servers=3, intervals=4, weight_servers=2) for _ in range(2))
    assert_same_bits(first, again)


@pytest.mark.slow
def test_the_number_of_weight_servers_changes_no_bit() -> None:
    given = case("sage", 2, 0.5)
    one, three = (given.train(servers=2, intervals=4, weight_servers=count) for count in (1, 3))
    assert_same_bits(one, three)


@pytest.mark.parametrize("policy", ["2bw", "flush"])
@pytest.mark.slow
def test_version_policies_change_no_bit_where_one_version_is_in_use(policy: str) -> None:
    given = case("gcn", 2, 0.5)
    assert_same_bits(given.train(servers=2, intervals=4), given.train(servers=2, intervals=4, weights=policy))


UNUSUAL: dict[str, tuple[type[nn.GNN], dict[str, Any]]] = {
    "layer_norm": (nn.GCN, {"norm": "layer_norm", "num_layers": 3}),
    "residual": (nn.GCN, {"residual": True, "num_layers": 3}),
    "residual with dropout everywhere": (
        nn.GraphSAGE,
        {"residual": True, "num_layers": 3, "input_dropout": 0.3, "norm": "layer_norm"},
    ),
    "input_dropout": (nn.GCN, {"input_dropout": 0.4}),
    "sage max": (nn.GraphSAGE, {"aggr": "max"}),
    "sage sum": (nn.GraphSAGE, {"aggr": "sum"}),
    "gin train_eps": (nn.GIN, {"train_eps": True, "eps": 0.1}),
    "gat of several heads": (nn.GAT, {"heads": 4, "out_heads": 2, "act": "elu", "input_dropout": 0.3}),
    "gcn without normalization": (nn.GCN, {"normalize": False}),
    "gcn without self-loops": (nn.GCN, {"add_self_loops": False, "bias": False}),
    "edge function with residual": (Gated, {"residual": True, "norm": "layer_norm", "act": "tanh"}),
    "one layer": (nn.GCN, {"num_layers": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
@pytest.mark.parametrize("name", UNUSUAL)
def test_options_of_the_models_are_exact_too(name: str, undirected: bool) -> None:
    graph = tangled_graph(undirected=undirected, weighted=undirected)
    kind, options = UNUSUAL[name]
    torch.manual_seed(3)
    shape = {"hidden_channels": 8, "num_layers": 2, "out_channels": graph.num_classes, "dropout": 0.5}
    given = case_of(graph, kind(graph.num_features, **(shape | options)))
    assert_exact(given.train(servers=3, intervals=2, weight_servers=2), given.truth)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_several_labels_a_vertex_are_exact_too(name: str) -> None:
    graph = tangled_graph(labels=4)
    given = case_of(graph, build(name, graph, 2, 0.5))
    assert_exact(given.train(servers=2, intervals=3), given.truth)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "sgd", "lr": 0.1},
        {"optimizer": "adamw"},
        {"decay": "first", "weight_decay": 0.05},
        {"normalize_features": True},
    ],
    ids=lambda settings: " ".join(settings),
)
def test_settings_of_the_training_are_exact_too(settings: dict[str, Any]) -> None:
    graph = tangled_graph()
    given = case_of(graph, build("gcn", graph, 2, 0.5), **settings)
    assert_exact(given.train(servers=2, intervals=3, weight_servers=2, **settings), given.truth)


@pytest.mark.parametrize("name", MODELS)
def test_servers_and_intervals_without_vertices_do_no_harm(name: str) -> None:
    given = case(name, 2, 0.5)
    owner = np.zeros(given.graph.num_vertices, np.uint16)
    owner[:2], owner[-1] = (
        1,
        3,
    )  # of four servers one owns two vertices, one a vertex without edges, one nothing
    lopsided = Partition("hash", 4, owner)
    assert_exact(given.train(servers=4, intervals=4, partition=lopsided), given.truth)


@pytest.mark.parametrize("name", MODELS)
def test_every_epochs_evaluation_is_the_oracles(name: str) -> None:
    given = case(name, 2, 0.5)
    run = siafu.train(
        given.graph,
        copy.deepcopy(given.model),
        epochs=EPOCHS,
        servers=2,
        intervals=3,
        partition="hash",
        **SETTINGS,
    )
    for epoch, scores in zip(run.history, given.truth.scores, strict=True):
        for split in ("train", "val", "test"):
            assert getattr(epoch, f"{split}_accuracy") == scores[f"{split}_accuracy"]
        assert epoch.val_loss == pytest.approx(scores["val_loss"], rel=1e-9)


# Single precision, judged by double.

LAYOUTS = {"whole": (1, 1), "in parts": (3, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_single_precision_gradients_are_within_a_hundred_thousandth(
    name: str, layers: int, layout: str
) -> None:
    given = case(name, layers, 0.5)
    single = copy.deepcopy(given.model).float()
    # A long step of plain SGD leaves hardly anything but the gradient.
    step, (servers, intervals) = 2.0**12, LAYOUTS[layout]
    stepped = train_in_pipeline(
        given.graph,
        single,
        epochs=1,
        optimizer="sgd",
        lr=step,
        weight_decay=0.0,
        seed=SETTINGS["seed"],
        servers=servers,
        intervals=intervals,
    )
    assert set(given.truth.gradients) == {each for each, _ in single.named_parameters()}
    for parameter, gradient in given.truth.gradients.items():
        before, after = given.model.state_dict()[parameter], stepped.weights[parameter].double()
        assert distance((before - after) / step, gradient) < 1e-5, parameter


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_single_precision_losses_are_within_a_thousandth(name: str, layers: int, layout: str) -> None:
    given = case(name, layers, 0.5)
    servers, intervals = LAYOUTS[layout]
    single = copy.deepcopy(given.model).float()
    trained = train_in_pipeline(
        given.graph,
        single,
        epochs=EPOCHS,
        evaluate_every=EPOCHS,
        servers=servers,
        intervals=intervals,
        **SETTINGS,
    )
    np.testing.assert_allclose(trained.losses, given.truth.losses, rtol=1e-3)

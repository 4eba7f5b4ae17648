"""PyG's models, unchanged, under `siafu.train`: exact, on any number of servers, with the weights in the user's model."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import add_self_loops, degree, softmax

import siafu
from siafu.program.compile import compile_model
from tests.oracle import train_plainly
from tests.sessions import losses
from tests.toys import edge_index, toy_graph


class Tutorial(pyg.MessagePassing):
    """The layer of PyG's tutorial, which adds self-loops and normalises by itself."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        out: Tensor = self.propagate(edge_index, x=x, norm=norm)
        return out

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


class Bilinear(pyg.MessagePassing):
    """Attention of the user's own making."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.map = nn.Parameter(torch.randn(channels, channels) / channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x)
        return out

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor) -> Tensor:
        alpha = softmax((x_i @ self.map * x_j).sum(-1), index)
        return alpha.unsqueeze(-1) * x_j


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.own, self.between = (
            Tutorial(8, 6),
            Bilinear(6),
            pyg.GATConv(6, 4, heads=2, dropout=0.2),
        )
        self.last = pyg.SAGEConv(8, 3, aggr=["mean", "max"])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.first(x, edge_index)), 0.3, self.training)
        x = F.elu(self.between(x + self.own(x, edge_index), edge_index))
        out: Tensor = self.last(x, edge_index)
        return out


class Deep(nn.Module):
    """GCNII, as its example has it."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(8, 6), nn.Linear(6, 3)])
        self.convs = nn.ModuleList([pyg.GCN2Conv(6, 0.1, 0.5, layer + 1, cached=True) for layer in range(4)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, x_0, edge_index).relu()
        return self.lins[1](x).log_softmax(dim=-1)  # type: ignore[no-any-return]


class OfData(nn.Module):
    """forward(data), as PyG's introduction has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.ChebConv(8, 6, 2), pyg.GATv2Conv(6, 3)

    def forward(self, data: Any) -> Tensor:
        x, edge_index = data.x, data.edge_index
        out: Tensor = self.second(torch.relu(self.first(x, edge_index)), edge_index)
        return out


MODELS: dict[str, Any] = {
    "mixed": Mixed,
    "deep": Deep,
    "of data": OfData,
    "arma": lambda: pyg.ARMAConv(8, 3, num_stacks=2, num_layers=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_trains_in_parts_as_in_one_piece(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    graph = toy_graph()
    truth = train_plainly(
        graph, siafu.nn.from_pyg(copy.deepcopy(model)), epochs=4, weight_decay=5e-4, dtype=torch.float64
    )
    run = siafu.train(graph.replace(val=None), model, epochs=4, servers=2, intervals=3, partition="hash")
    assert losses(run) == pytest.approx(truth.losses, rel=1e-9)
    for name, weight in truth.weights.items():
        torch.testing.assert_close(
            model.state_dict()[name.removeprefix("model.")], weight, rtol=1e-8, atol=1e-11
        )


def data_of(graph: siafu.Graph) -> Data:
    masks = {}
    for split in ("train", "val", "test"):
        mask = torch.zeros(graph.num_vertices, dtype=torch.bool)
        mask[torch.from_numpy(getattr(graph, split))] = True
        masks[f"{split}_mask"] = mask
    return Data(
        x=torch.from_numpy(graph.x), edge_index=edge_index(graph), y=torch.from_numpy(graph.y), **masks
    )


@pytest.mark.slow
def test_pygs_data_goes_in_and_the_users_model_has_the_weights() -> None:
    torch.manual_seed(0)
    model, data = pyg.GCN(8, 6, 2, 3, cached=True), data_of(toy_graph())
    before = copy.deepcopy(model.state_dict())
    run = siafu.train(data, model, epochs=20)
    assert run.model is model
    assert list(model.state_dict()) == list(before)
    assert not torch.equal(model.convs[0].lin.weight, before["convs.0.lin.weight"])
    model.eval()
    with torch.no_grad():
        theirs = model(data.x, data.edge_index)
    assert torch.equal(run.predict(data), theirs.argmax(1))
    assert run.evaluate(data)["test"]["accuracy"] == run.summary()["test_accuracy"]


@pytest.mark.slow
def test_a_cache_keeps_no_stand_in_and_one_that_was_there_stays() -> None:
    model, data = pyg.GCN(8, 6, 2, 3, cached=True), data_of(toy_graph())
    siafu.train(data, model, epochs=1)
    assert model.convs[0]._cached_edge_index is None
    model(data.x, data.edge_index)
    kept = model.convs[0]._cached_edge_index
    siafu.train(data, model, epochs=1)
    assert model.convs[0]._cached_edge_index is kept


def test_pyg_is_as_it_was_afterwards() -> None:
    from torch_geometric.nn.aggr import Aggregation
    from torch_geometric.nn.conv import gcn_conv

    before = gcn_conv.gcn_norm, Aggregation.__call__, softmax
    model = Mixed()
    siafu.nn.from_pyg(model)(toy_graph())
    assert (gcn_conv.gcn_norm, Aggregation.__call__, softmax) == before
    assert "propagate" not in vars(model.first)


def test_what_edge_weight_gets_is_said() -> None:
    graph = toy_graph()
    weighted = graph.replace(edge_weight=np.ones(graph.num_edges, np.float32))
    said = [
        compile_model(model, each, training=True).choices[0]
        for model, each in [
            (pyg.GCN(8, 6, 2, 3), graph),
            (pyg.GCN(8, 6, 2, 3), weighted),
            (pyg.SAGEConv(8, 3), weighted),
        ]
    ]
    assert "GCN's edge_weight: None" in said[0]
    assert "GCN's edge_weight: the weights of the graph" in said[1]
    assert "SAGEConv's forward takes no edge_weight" in said[2]


@pytest.mark.slow
def test_a_run_is_loaded_again(tmp_path: Path) -> None:
    graph = toy_graph()
    torch.manual_seed(0)
    model = pyg.GAT(8, 6, 2, 3, heads=2)
    run = siafu.train(graph, model, epochs=2, out=tmp_path / "run")
    again = siafu.Run.load(tmp_path / "run", pyg.GAT(8, 6, 2, 3, heads=2))
    assert torch.equal(again.predict(graph), run.predict(graph))


@pytest.mark.slow
def test_pyg_is_not_imported_for_models_of_siafus_own() -> None:
    code = (
        "import sys, siafu; from siafu.nn.calling import is_pyg;"
        "assert siafu.train and not is_pyg(siafu.nn.GCN(4, 4, 2, 2));"
        "assert not any(name.startswith('torch_geometric') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


class CoraNet(nn.Module):
    """Two layers as the examples have them."""

    def __init__(self, first: nn.Module, second: nn.Module, act: Any) -> None:
        super().__init__()
        self.first, self.second, self.act = first, second, act

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, 0.6, self.training)
        x = self.act(self.first(x, edge_index))
        out: Tensor = self.second(F.dropout(x, 0.6, self.training), edge_index)
        return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "published"),
    [
        (lambda: CoraNet(pyg.GCNConv(1433, 16, cached=True), pyg.GCNConv(16, 7), F.relu), 0.815),
        (lambda: CoraNet(pyg.GATConv(1433, 8, heads=8), pyg.GATConv(64, 7), F.elu), 0.83),
    ],
    ids=["gcn", "gat"],
)
def test_cora_reaches_the_published_accuracy(shared_data: Path, build: Any, published: float) -> None:
    file = np.load(shared_data / "graphs" / "cora.npz")
    x = np.zeros((int(file["num_nodes"]), int(file["x_dim"])), np.float32)
    rows = np.repeat(np.arange(len(x)), np.diff(file["x_indptr"]))
    x[rows, file["x_indices"]] = 1
    splits = {name: file["split"] == k for k, name in enumerate(("train", "val", "test"))}
    graph = siafu.Graph.from_edges(
        file["src"],
        file["dst"],
        num_vertices=len(x),
        undirected=True,
        x=x,
        y=file["y"].astype(np.int64),
        **splits,
    )
    torch.manual_seed(1)
    run = siafu.train(graph, build(), epochs=100, lr=0.01, weight_decay=5e-4, normalize_features=True)
    assert run.summary()["test_accuracy"] > published - 0.025


class Quantity(nn.Module):
    """A number for each vertex, without a dimension for columns, or with it."""

    def __init__(self, *, column: bool) -> None:
        super().__init__()
        self.column, self.first, self.last = column, pyg.SAGEConv(8, 4), pyg.SAGEConv(4, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x, edge_index).relu(), edge_index)
        return out if self.column else out.squeeze(-1)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "sampled"])
def test_a_number_for_each_vertex_may_come_without_a_dimension_for_columns(way: str) -> None:
    graph = toy_graph()
    y = np.random.default_rng(0).standard_normal(graph.num_vertices).astype(np.float32)
    graph = graph.replace(y=y, num_classes=1)
    found = []
    for column in (True, False):
        torch.manual_seed(0)
        run = siafu.train(graph, Quantity(column=column), epochs=3, mode=way, seed=0)
        found.append((losses(run), run.predict(graph)))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])

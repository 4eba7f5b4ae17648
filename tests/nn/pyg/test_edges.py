"""Features of edges in a training: PyG's losses on any number of servers, equal bits in every mode and over threads."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import siafu
from siafu.base.errors import BadInput
from siafu.program.record.record import record
from tests.sessions import losses


def data_with(columns: int = 3) -> Data:
    """A directed multigraph with self-loops and isolated vertices."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 75, (2, 600))
    ends = np.concatenate([ends, ends[:, :20], np.repeat(rng.integers(0, 75, (1, 9)), 2, 0)], 1)
    train = torch.zeros(80, dtype=torch.bool)
    train[:40] = True
    return Data(
        x=torch.from_numpy(rng.standard_normal((80, 8)).astype(np.float32)),
        edge_index=torch.from_numpy(ends),
        edge_attr=torch.from_numpy(rng.standard_normal((ends.shape[1], columns)).astype(np.float32)),
        y=torch.from_numpy(rng.integers(0, 4, 80)),
        train_mask=train,
    )


class Net(nn.Module):
    def __init__(self, kind: Any, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = kind(8, 5, heads=3, edge_dim=3, dropout=dropout)
        self.second = kind(15, 4, edge_dim=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)
        return out


def pygs_losses(model: nn.Module, data: Data, epochs: int) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.edge_attr)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pyg.GATv2Conv, pyg.TransformerConv])
def test_features_of_edges_train_as_in_pyg_on_any_number_of_servers(kind: Any) -> None:
    data = data_with()
    expected = pygs_losses(Net(kind), data, 3)
    settings: list[dict[str, Any]] = [
        {"mode": "sync"},
        {"mode": "pipe", "servers": 3},
        {"mode": "pipe", "servers": 2, "partition": "hash"},
    ]
    for each in settings:
        run = siafu.train(data, Net(kind), epochs=3, lr=0.01, weight_decay=0.0, **each)
        np.testing.assert_allclose(losses(run), expected, atol=2e-6)


@pytest.mark.slow
def test_modes_and_intervals_have_equal_bits_with_dropout() -> None:
    graph = siafu.Graph.from_pyg(data_with())
    runs = [
        siafu.train(graph, Net(pyg.GATv2Conv, 0.4), epochs=3, mode=mode, intervals=5)
        for mode in ("sync", "pipe")
    ]
    assert losses(runs[0]) == losses(runs[1])
    layout = siafu.train(graph.reorder("degree"), Net(pyg.GATv2Conv, 0.4), epochs=3, intervals=5)
    np.testing.assert_allclose(losses(layout), losses(runs[0]), rtol=1e-5)
    late = siafu.train(graph, Net(pyg.GATv2Conv), epochs=3, mode="async", servers=2)
    assert losses(late)[-1] < losses(late)[0]


def test_what_a_model_gets_of_the_edges_is_said() -> None:
    graph = siafu.Graph.from_pyg(data_with())
    said = record(Net(pyg.GATv2Conv), graph, training=True).remarks
    assert "Net's edge_attr: those of the graph, 3 columns" in said
    said = record(pyg.SAGEConv(8, 4), graph, training=True).remarks
    assert "SAGEConv's forward takes no edge_attr: the features of edges do not count" in said


def test_another_number_of_columns_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"GATv2Conv: edge_dim=3, but edge_attr has 2 columns: build it with edge_dim=2"
    ):
        siafu.train(data_with(2), Net(pyg.GATv2Conv), epochs=1)


def test_features_of_removed_self_loops_are_refused_where_they_cannot_be_left_out() -> None:
    with pytest.raises(
        BadInput, match=r"GATConv: edge_attr of stored self-loops .*: remove self-loops from data"
    ):
        siafu.train(data_with(), pyg.GATConv(8, 4, edge_dim=3), epochs=1)


@pytest.mark.slow
def test_own_gatv2_has_pygs_weights_and_outputs() -> None:
    data = data_with()
    ours, theirs = siafu.nn.GATv2(8, 6, 2, 4, heads=2), pyg.GAT(8, 6, 2, 4, heads=2, v2=True)
    theirs.load_state_dict(ours.state_dict())
    graph = siafu.Graph.from_pyg(data)
    torch.testing.assert_close(ours(graph), theirs(data.x, data.edge_index), rtol=1e-5, atol=1e-5)


class Typed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = pyg.RGCNConv(8, 6, 5, num_bases=2), pyg.RGCNConv(6, 4, 5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)
        return out


@pytest.mark.slow
def test_types_of_edges_train_as_in_pyg_on_any_number_of_servers() -> None:
    data = data_with()
    data.edge_type = torch.arange(data.edge_index.shape[1]) % 5
    theirs = Typed()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        out = theirs(data.x, data.edge_index, data.edge_type)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    for settings in ({"mode": "sync"}, {"mode": "pipe", "servers": 3}):
        run = siafu.train(data, Typed(), epochs=3, lr=0.01, weight_decay=0.0, **settings)  # type: ignore[arg-type]
        np.testing.assert_allclose(losses(run), expected, atol=2e-6)


def test_more_types_than_matrices_are_refused() -> None:
    data = data_with()
    data.edge_type = torch.full((data.edge_index.shape[1],), 7)
    with pytest.raises(
        BadInput, match=r"edge_type goes up to 7, but the model has 5 relations: .*num_relations=8"
    ):
        siafu.train(data, Typed(), epochs=1)

"""PyG's `HeteroData`: one graph of vertices of several types, and a linear map for each."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph


def library() -> HeteroData:
    """Papers and authors with features of their own widths, venues without any."""
    draw = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(30, 5, generator=draw), torch.randn(12, 3, generator=draw)
    data["venue"].num_nodes = 4
    data["paper"].y = torch.arange(30) % 3
    for number, part in enumerate(("train", "val", "test")):
        data["paper"][f"{part}_mask"] = torch.arange(30) // 10 == number
    ends = torch.stack(
        [torch.randint(0, 12, (80,), generator=draw), torch.randint(0, 30, (80,), generator=draw)]
    )
    data["author", "writes", "paper"].edge_index = ends
    data["paper", "by", "author"].edge_index = ends.flip(0)
    data["venue", "has", "paper"].edge_index = torch.stack([torch.arange(30) % 4, torch.arange(30)])
    return data


def test_types_become_ranges_of_vertices_and_of_columns() -> None:
    data = library()
    types, graph = siafu.VertexTypes.of(data), Graph.from_pyg(data)
    assert (types.names, types.counts, types.widths) == (("paper", "author", "venue"), (30, 12, 4), (5, 3, 0))
    assert graph.x is not None and graph.y is not None and graph.train is not None
    assert graph.x.shape == (46, types.width) == (46, 11)
    where, columns = types.vertices("author"), types.columns("author")
    np.testing.assert_array_equal(graph.x[where, columns], data["author"].x)
    assert graph.x[where].sum() == pytest.approx(float(data["author"].x.sum()) + 12, rel=1e-5)
    assert (graph.x[types.vertices("venue")].sum(1) == 1).all()
    assert graph.type_names == ("author writes paper", "paper by author", "venue has paper")
    assert graph.num_edges == 190 and graph.num_relations == 3
    assert graph.y[:30].tolist() == data["paper"].y.tolist() and (graph.y[30:] == -1).all()
    assert graph.train.tolist() == list(range(10))


class Net(nn.Module):
    def __init__(self, types: siafu.VertexTypes) -> None:
        super().__init__()
        self.lin = siafu.nn.TypedLinear(types, 8)
        self.first, self.last = pyg.RGCNConv(8, 8, 3, num_bases=2), pyg.RGCNConv(8, 3, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        x = self.first(self.lin(x).relu(), edge_index, edge_type).relu()
        out: Tensor = self.last(x, edge_index, edge_type)
        return out


def test_r_gcn_after_a_map_for_each_type_is_pygs() -> None:
    data = library()
    types = siafu.VertexTypes.of(data)
    net = Net(types)
    maps = pyg.HeteroDictLinear({"paper": 5, "author": 3}, 8)
    with torch.no_grad():
        for name in ("paper", "author"):
            maps.lins[name].weight.copy_(net.lin.weight[:, types.columns(name)])
            maps.lins[name].bias.copy_(net.lin.weight[:, types.column_of_ones(name)])
        rows = maps({name: data[name].x for name in ("paper", "author")})
        rows["venue"] = net.lin.weight[:, types.column_of_ones("venue")].expand(4, -1)
        whole = data.to_homogeneous(add_node_type=False)
        x = torch.cat([rows[name] for name in types.names]).relu()
        x = net.first(x, whole.edge_index, whole.edge_type).relu()
        expected = net.last(x, whole.edge_index, whole.edge_type)
        out = siafu.nn.from_pyg(net)(Graph.from_pyg(data))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_it_is_trained_on_several_servers() -> None:
    data = library()
    run = siafu.train(data, Net(siafu.VertexTypes.of(data)), epochs=15, lr=0.03, servers=2)
    assert run.history[-1].train_loss < 0.6 * run.history[0].train_loss
    assert run.predict(data).shape == (46,)


def without(data: HeteroData, name: str, field: str) -> HeteroData:
    del data[name][field]
    return data


def labelled_twice() -> HeteroData:
    data = library()
    data["author"].y, data["author"].train_mask = torch.zeros(12).long(), torch.ones(12).bool()
    return data


def half_weighted() -> HeteroData:
    data = library()
    data["paper", "by", "author"].edge_weight = torch.ones(80)
    return data


def too_far() -> HeteroData:
    data = library()
    data["venue", "has", "paper"].edge_index = torch.tensor([[4], [0]])
    return data


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (labelled_twice, "types paper and author have labels: delete y or train_mask of all but"),
        (half_weighted, "edge_weight of some types of edges alone.* give it to all types"),
        (too_far, r"edge_index\[0\] of venue has paper.* is 4"),
        (HeteroData, "no edges"),
    ],
)
def test_what_is_no_one_graph_is_refused(build: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Graph.from_pyg(build())


def test_quantities_and_labels_of_one_type_are_taken() -> None:
    data = library()
    data["paper"].y = torch.rand(30)
    assert Graph.from_pyg(data).has_quantities
    data["paper"].y = (torch.rand(30, 4) < 0.5).float()
    assert Graph.from_pyg(data).multi_label
    graph = Graph.from_pyg(without(data, "paper", "y"))
    assert graph.y is None


class ByDictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        return F.relu(self.lin(x_dict["paper"]))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((-1, -1), 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out


@pytest.mark.parametrize("kind", ["dictionary", "to_hetero"])
def test_models_by_dictionaries_are_refused_with_what_to_write(kind: str) -> None:
    data = library()
    model = ByDictionary() if kind == "dictionary" else pyg.to_hetero(Plain(), data.metadata())
    with pytest.raises(
        BadInput, match=r"dictionary by types of vertices .* RGCNConv after siafu\.nn\.TypedLinear"
    ):
        siafu.train(data, model, epochs=1)

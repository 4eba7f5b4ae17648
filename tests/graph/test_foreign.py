from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.foreign import graph_of


def toy(**extra: Any) -> Data:
    return Data(
        x=torch.arange(8.0).reshape(4, 2),
        y=torch.tensor([0, 1, 2, 0]),
        edge_index=torch.tensor([[0, 2, 1, 1], [1, 1, 1, 3]]),
        train_mask=torch.tensor([True, False, False, False]),
        val_mask=torch.tensor([False, True, False, False]),
        test_mask=torch.tensor([False, False, True, True]),
        **extra,
    )


def test_a_pyg_graph_keeps_edges_features_labels_and_masks() -> None:
    graph = Graph.from_pyg(toy())
    assert graph.indptr.tolist() == [0, 0, 3, 3, 4]
    assert graph.indices.tolist() == [0, 1, 2, 1]
    assert graph.x is not None and graph.y is not None
    assert graph.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert graph.y.tolist() == [0, 1, 2, 0]
    assert [part.tolist() for part in (graph.train, graph.val, graph.test) if part is not None] == [
        [0],
        [1],
        [2, 3],
    ]


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_a_pyg_edge_attr_of_one_number_is_the_weight(shape: tuple[int, ...]) -> None:
    graph = Graph.from_pyg(toy(edge_attr=torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(shape)))
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1, 3, 2, 4]


def test_a_wider_pyg_edge_attr_stays_with_its_edges() -> None:
    graph = Graph.from_pyg(
        toy(edge_attr=torch.arange(8.0).reshape(4, 2), edge_type=torch.tensor([0, 1, 2, 1]))
    )
    assert graph.edge_weight is None
    assert graph.edge_attr is not None
    assert graph.edge_type is not None
    assert graph.edge_attr.tolist() == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert graph.edge_type.tolist() == [0, 2, 1, 1]
    assert graph.num_relations == 3


def test_isolated_pyg_vertices_are_kept() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=5)
    assert Graph.from_pyg(data).num_vertices == 5


def test_a_bfloat16_pyg_graph_stays_bfloat16() -> None:
    data = toy()
    data.x = data.x.to(torch.bfloat16)
    graph = Graph.from_pyg(data)
    assert graph.x is not None
    assert graph.x.dtype == np.uint16
    assert np.array_equal(graph.x, Graph.from_pyg(toy()).with_bf16_features().x)


def test_a_pyg_graph_without_edge_index_is_refused() -> None:
    with pytest.raises(BadInput, match="edge_index of shape"):
        Graph.from_pyg(Data(x=torch.ones(3, 1)))


def test_a_pyg_graph_of_several_types_is_one_graph_with_types_of_edges() -> None:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.ones(3, 2), torch.zeros(2, 2)
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    data["item", "like", "item"].edge_index = torch.tensor([[0], [1]])
    for graph in (Graph.from_pyg(data), graph_of(data, "train"), Graph.from_pyg(data.to_homogeneous())):
        assert graph.num_relations == 2 and graph.num_vertices == 5
        assert graph.indices.tolist() == [0, 1, 2, 3]


def test_several_pyg_splits_must_be_narrowed_to_one() -> None:
    data = toy()
    data.train_mask = torch.ones(4, 10, dtype=torch.bool)
    with pytest.raises(BadInput, match=r"choose one split, for example train_mask\[:, 0\]"):
        Graph.from_pyg(data)


class FakeDglGraph:
    """What `from_dgl` uses of a DGLGraph, whose edges(order="eid") match the rows of edata."""

    def __init__(self, **extra: Any) -> None:
        data = toy()
        self.ndata = {"feat": data.x, "label": data.y, "train_mask": data.train_mask.to(torch.uint8)}
        self.edata = dict(extra)
        self._ends = tuple(data.edge_index)

    def edges(self, order: str) -> tuple[torch.Tensor, ...]:
        assert order == "eid"
        return self._ends

    def num_nodes(self) -> int:
        return 6


def test_a_dgl_graph_keeps_edges_features_labels_and_masks() -> None:
    fake = FakeDglGraph(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    fake.ndata = {name: torch.cat([rows, rows[:2]]) for name, rows in fake.ndata.items()}
    graph = Graph.from_dgl(fake)
    assert graph.num_vertices == 6
    assert graph.indices.tolist() == [0, 1, 2, 1]
    assert graph.edge_weight is not None and graph.train is not None
    assert graph.edge_weight.tolist() == [1, 3, 2, 4]
    assert (graph.num_features, graph.num_classes) == (2, 3)
    assert graph.train.tolist() == [0, 4]
    assert graph.val is None


def test_something_else_than_a_dgl_graph_is_refused() -> None:
    with pytest.raises(BadInput, match="from_dgl wants a homogeneous DGLGraph"):
        Graph.from_dgl([1, 2, 3])

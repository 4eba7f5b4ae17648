"""What cannot be taken apart is refused before training, in one line: the layer, the operation, what to do instead."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric import utils
from torch_geometric.utils import dropout_edge, to_undirected

import siafu
from siafu.base.errors import BadInput
from siafu.nn.calling import is_pyg
from tests.toys import toy_graph


class Changing(nn.Module):
    """A GCN on a graph that it changes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(8, 3)

    def changed(self, edge_index: Tensor) -> Tensor:
        return edge_index

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, self.changed(edge_index))
        return out


class DropsEdges(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        out: Tensor = dropout_edge(edge_index, p=0.5)[0]
        return out


class Undirected(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        return to_undirected(edge_index)


class ByAttribute(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        return utils.coalesce(edge_index)


class Reversed(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        return edge_index.flip(0)


class Sparse(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        return torch.eye(210).to_sparse()


class Elsewhere(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        return torch.zeros(2, 4, dtype=torch.int64)


class PropagatesElsewhere(Changing):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(8, 3)

    def changed(self, edge_index: Tensor) -> Tensor:
        return torch.zeros(2, 4, dtype=torch.int64)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv(x, edge_index, return_attention_weights=True)


class WantsMore(Changing):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index)


class Typed(Changing):
    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index)


class Own(pyg.MessagePassing):
    """A layer whose messages are to be overridden."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lin = nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x))
        return out


class DropsMessages(Own):
    def message(self, x_j: Tensor) -> Tensor:
        return F.dropout(x_j, 0.5, self.training)


class Weighs(pyg.GCNConv):
    """Asks for the greatest number of all vertices."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = super().forward(x, edge_index)
        return out / out.amax(0, keepdim=True)


class NormsMessages(Own):
    def message(self, x_j: Tensor) -> Tensor:
        return F.instance_norm(x_j.t().unsqueeze(0)).squeeze(0).t()


class NormsHeads(Own):
    def message(self, x_j: Tensor) -> Tensor:
        out: Tensor = self.norm(x_j.unsqueeze(-1)).squeeze(-1)
        return out


class Multiplies(nn.Module):
    """A sparse matrix, made in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        ones = torch.ones(edge_index.size(1))
        matrix = torch.sparse_coo_tensor(edge_index, ones, (x.size(0), x.size(0)))
        return matrix @ self.lin(x)


class PicksEdges(Changing):
    def changed(self, edge_index: Tensor) -> Tensor:
        return edge_index[:, :10]


class CountsMessages(Own):
    def message(self, x_j: Tensor) -> Tensor:
        return x_j / x_j.sum()


class TakesRows(Own):
    """Rows of vertices in a message, past `propagate`."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.rows = self.lin(x)
        out: Tensor = self.propagate(edge_index, x=self.rows)
        return out

    def message(self, x_j: Tensor) -> Tensor:
        return x_j + self.rows


class ByNumbers(Own):
    def message(self, x_j: Tensor, index: Tensor) -> Tensor:
        return x_j * index


class SumsOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = utils.scatter(
            self.lin(x)[edge_index[1]], edge_index[0], dim_size=x.size(0), reduce="sum"
        )
        return out


class Bipartite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((8, 8), 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv((x, torch.zeros(10, 8)), edge_index)
        return out


class OwnPropagate(pyg.GCNConv):
    def __init__(self) -> None:
        super().__init__(8, 3)

    def propagate(self, edge_index: Tensor, **given: Any) -> Tensor:
        out: Tensor = 2 * super().propagate(edge_index, **given)
        return out


class DropsShares(pyg.MessagePassing):
    """Dropout of attention whose logits no kernel has."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.lin = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x))
        return out

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor) -> Tensor:
        alpha = utils.softmax((x_i - x_j).abs().sum(-1), index)
        return F.dropout(alpha, 0.5, self.training).unsqueeze(-1) * x_j


class SeesAll(nn.Module):
    """Attention of all vertices to all others beside a layer over edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = pyg.GPSConv(8, pyg.SAGEConv(8, 8), heads=2), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.out(self.conv(x, edge_index))
        return out


class Turned(torch.autograd.Function):
    """Rows whose gradients change their sign, as adversarial training has it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # type: ignore[override]
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return -gradient


class OwnGradient(Changing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = Turned.apply(super().forward(x, edge_index))
        return out


REFUSED: dict[str, tuple[Any, str, str]] = {
    "dropout_edge": (DropsEdges, "DropsEdges: dropout_edge", "before training"),
    "to_undirected": (Undirected, "Undirected: to_undirected", "before training"),
    "a function by its module": (ByAttribute, "ByAttribute: coalesce", "before training"),
    "edges turned round": (Reversed, "Reversed: flip of edge_index on a directed graph", "turned round"),
    "adj_t": (Sparse, "GCNConv: gcn_norm of Tensor instead of edge_index", "adj_t"),
    "another edge_index": (Elsewhere, "GCNConv: gcn_norm of Tensor", "the edge_index that forward got"),
    "another graph": (
        PropagatesElsewhere,
        "SAGEConv: propagate over Tensor",
        "the edge_index that forward got",
    ),
    "attention weights": (Attention, "Attention: forward gives 2 values", "return_attention_weights"),
    "edge_attr": (WantsMore, "WantsMore's forward wants 'edge_attr'", "give 'edge_attr' a default"),
    "edge_type": (Typed, "Typed's forward wants 'edge_type'", "give 'edge_type' a default"),
    "edge_dim": (lambda: pyg.GATConv(8, 3, edge_dim=2), "GATConv: edge_dim=2", "no edge_dim"),
    "propagate": (OwnPropagate, "OwnPropagate: an override of propagate", "override `message`"),
    "no shape yet": (lambda: pyg.GCNConv(-1, 3), "lin.weight has no shape yet", "call the model once"),
    "flow": (lambda: pyg.SAGEConv(8, 3, flow="target_to_source"), "SAGEConv: flow=", "turned round"),
    "flow of a norm": (lambda: pyg.GCNConv(8, 3, flow="target_to_source"), "GCNConv: flow=", "turned round"),
    "decomposed": (
        lambda: pyg.SAGEConv(8, 3, decomposed_layers=2),
        "decomposed_layers",
        "decomposed_layers=1",
    ),
    "lstm": (lambda: pyg.SAGEConv(8, 3, aggr="lstm"), "SAGEConv: LSTMAggregation", "use sum"),
    "median": (lambda: pyg.SAGEConv(8, 3, aggr="median"), "SAGEConv: MedianAggregation", "use sum"),
    "product": (lambda: pyg.SAGEConv(8, 3, aggr="mul"), "aggregation 'mul'", "use sum, mean, max"),
    "dropout of messages": (DropsMessages, "DropsMessages: dropout", "drop rows"),
    "instance norm of messages": (
        NormsMessages,
        "NormsMessages: instance_norm of values of edges",
        "on vertices",
    ),
    "batch norm of heads": (
        NormsHeads,
        "a batch norm of values of edges with 3 dimensions",
        "[edges, channels]",
    ),
    "sparse matrix": (Multiplies, "Multiplies: a sparse matrix of edge_index", "MessagePassing, scatter"),
    "some edges": (PicksEdges, "PicksEdges: edges picked by a mask", "RGCNConv with edge_type"),
    "sum of all edges": (CountsMessages, "CountsMessages: sum mixes", "aggregation"),
    "rows in a message": (TakesRows, "TakesRows: add", "x_i and x_j"),
    "numbers of vertices": (ByNumbers, "ByNumbers: mul of edge_index", "cannot be taken apart"),
    "sum over out-edges": (SumsOut, "SumsOut: aggregation 'sum' over a vertex's out-edges", "turned round"),
    "attention's dropout": (
        DropsShares,
        "DropsShares: dropout of attention weights",
        "set its dropout to 0",
    ),
    "bipartite": (Bipartite, "SAGEConv: sources and targets with rows of their own", "one graph"),
    "global attention": (SeesAll, "GPSConv: to_dense_batch", "leave out global attention"),
    "hyperedges": (lambda: pyg.HypergraphConv(8, 3), "HypergraphConv: max of edge_index", "data.edge_index"),
    "rows picked by degree": (lambda: pyg.MFConv(8, 3), "MFConv: nonzero", "torch.where"),
    "a backward of its own": (
        OwnGradient,
        "the model's Turned is a torch.autograd.Function",
        "PyTorch's functions",
    ),
    "softmax over vertices": (
        lambda: Weighs(8, 3),
        "Weighs: amax mixes",
        "sums, means, variances",
    ),
}


def one_way() -> siafu.Graph:
    """The toy graph with its edges in one direction alone."""
    graph = toy_graph()
    target = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    kept = graph.indices < target
    data = {name: getattr(graph, name) for name in ("x", "y", "train", "val", "test")}
    return siafu.Graph.from_edges(graph.indices[kept], target[kept], num_vertices=graph.num_vertices, **data)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_layer_and_operation_with_what_to_do(name: str) -> None:
    build, what, instead = REFUSED[name]
    turned = "turned round" in instead
    with pytest.raises(BadInput) as caught:
        siafu.train(one_way() if turned else toy_graph(), build(), epochs=1)
    said = str(caught.value)
    assert what in said
    assert instead in said
    assert "\n" not in said


class EncodedEdges(nn.Module):
    """A layer that was built for another width than the encoder's."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.conv = nn.Linear(2, 5), pyg.TransformerConv(8, 3, edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index, self.encode(edge_attr))
        return out


def test_features_of_edges_count_where_the_layer_gets_them() -> None:
    graph = toy_graph()
    with_features = graph.replace(edge_attr=np.zeros((graph.num_edges, 2), np.float32))
    with pytest.raises(
        BadInput, match="TransformerConv: edge_dim=2, but edge_attr has 5 columns: build it with edge_dim=5"
    ):
        siafu.train(with_features, EncodedEdges(), epochs=1)


class KindRows(Own):
    """A vector for each type of edges: for fewer than there are, or with options of an embedding."""

    def __init__(self, rows: int, **options: Any) -> None:
        super().__init__()
        self.kinds = nn.Embedding(rows, 3, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x), kind=self.kinds(edge_type))
        return out

    def message(self, x_j: Tensor, kind: Tensor) -> Tensor:
        return x_j + kind


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: KindRows(2),
            "KindRows: rows for 2 types of edges: the graph has 3 types: give a row for each",
        ),
        (
            lambda: KindRows(3, padding_idx=0),
            "KindRows: an embedding of edge_type with padding_idx or max_norm",
        ),
        (
            lambda: pyg.SAGEConv(8, 3, flow="target_to_source"),
            "SAGEConv: flow=.* with edge_attr or edge_type",
        ),
    ],
)
def test_types_of_edges_that_do_not_fit_are_refused(build: Any, message: str) -> None:
    graph = toy_graph()
    typed = graph.replace(edge_type=np.arange(graph.num_edges, dtype=np.int32) % 3)
    with pytest.raises(BadInput, match=message):
        siafu.train(typed, build(), epochs=1)


def test_explain_and_hooks_are_refused() -> None:
    hooked = pyg.SAGEConv(8, 3)
    hooked.register_message_forward_hook(lambda *given: None)
    with pytest.raises(BadInput, match="SAGEConv: hooks of message passing: remove them"):
        siafu.train(toy_graph(), hooked, epochs=1)


def test_what_is_no_model_of_pyg_is_refused_by_from_pyg() -> None:
    with pytest.raises(BadInput, match="forward\\(x, edge_index"):
        siafu.nn.from_pyg(nn.Linear(3, 3))


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(BadInput, match=r"train takes a siafu\.Graph or PyG's Data, not list"):
        siafu.train([], pyg.GCN(8, 8, 2, 3))


def test_siafus_own_models_are_not_taken_for_pygs() -> None:
    assert not is_pyg(siafu.nn.GCN(8, 8, 2, 3))
    assert is_pyg(pyg.GCN(8, 8, 2, 3))

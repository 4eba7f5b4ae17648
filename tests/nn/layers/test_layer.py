"""A user's own layers."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import MessagePassing

import siafu
from siafu import nn
from siafu.base.errors import BadInput
from siafu.nn.gathers import edgewise
from tests.toys import edge_index


def some_graph(*, weighted: bool = False) -> siafu.Graph:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 30, 200), rng.integers(0, 27, 200)
    weights = rng.random(200).astype(np.float32) if weighted else None
    return siafu.Graph.from_edges(src, dst, num_vertices=30, edge_weight=weights)


class HighPass(nn.Layer):
    """The layer that docs/models.md shows: what a vertex is beyond the mean of its neighbours."""

    gather = nn.Mean()

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(in_channels, out_channels)

    def transform(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x) - gathered)


class PygHighPass(MessagePassing):
    def __init__(self, lin: torch.nn.Linear) -> None:
        super().__init__(aggr="mean")
        self.lin = lin

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x) - self.propagate(edge_index, x=self.lin(x)))


def test_a_users_layer_trains_like_its_pyg_twin() -> None:
    graph = some_graph()
    layer = HighPass(6, 4)
    twin = PygHighPass(layer.lin)
    x = torch.randn(30, 6)
    out = layer(graph, x)
    expected = twin(x, edge_index(graph))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    (ours,) = torch.autograd.grad(out.square().sum(), layer.lin.weight)
    (theirs,) = torch.autograd.grad(expected.square().sum(), layer.lin.weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


class EdgeConv(nn.Layer):
    """max_j MLP([x_i, x_j - x_i]): messages that depend on both ends."""

    def __init__(self, in_channels: int, out_channels: int, gather: nn.Gather) -> None:
        super().__init__()
        self.gather = gather
        self.lin = torch.nn.Linear(2 * in_channels, out_channels)

    def apply_edge(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.lin(torch.cat([target, source - target], 1)))


class PygEdgeConv(MessagePassing):
    def __init__(self, lin: torch.nn.Linear, aggr: str) -> None:
        super().__init__(aggr=aggr)
        self.lin = lin

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: torch.Tensor, x_j: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.lin(torch.cat([x_i, x_j - x_i], 1)))


@pytest.mark.parametrize("aggr,gather", [("sum", nn.Sum()), ("mean", nn.Mean()), ("max", nn.Max())])
@pytest.mark.parametrize("edges_at_once", [1 << 18, 16, 1])
def test_messages_of_edges_agree_with_pyg_whatever_the_block(
    aggr: str, gather: nn.Gather, edges_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edgewise, "_EDGES_AT_ONCE", edges_at_once)
    graph = some_graph()
    layer = EdgeConv(5, 7, gather)
    twin = PygEdgeConv(layer.lin, aggr)
    x = torch.randn(30, 5)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = layer(graph, ours), twin(theirs, edge_index(graph))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    gradient = torch.randn_like(expected)
    mine = torch.autograd.grad(out, [ours, *layer.parameters()], gradient)
    peer = torch.autograd.grad(expected, [theirs, *twin.parameters()], gradient)
    for a, b in zip(mine, peer, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_edge_weights_multiply_messages() -> None:
    graph = some_graph(weighted=True)
    layer = EdgeConv(5, 7, nn.Sum())
    x = torch.randn(30, 5)
    source, target = edge_index(graph)
    messages = layer.apply_edge(x[source], x[target]) * torch.from_numpy(graph.edge_weight)[:, None]
    expected = torch.zeros(30, 7).index_add(0, target, messages)
    torch.testing.assert_close(layer(graph, x), expected, rtol=1e-5, atol=1e-5)


def test_messages_with_a_gather_that_makes_its_own_are_refused() -> None:
    layer = EdgeConv(5, 7, nn.GcnSum())
    with pytest.raises(BadInput, match="Sum, Mean or Max, not GcnSum"):
        layer(some_graph(), torch.randn(30, 5))


def test_rows_that_do_not_fit_the_graph_are_refused() -> None:
    with pytest.raises(BadInput, match="x has 3 rows but the graph has 30 vertices"):
        nn.GCNConv(5, 7)(some_graph(), torch.randn(3, 5))


def test_half_precision_tensors_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match="a gather wants float32 or float64"):
        nn.Sum()(some_graph(), torch.randn(30, 5).half())


def test_a_maximum_of_zero_passes_on_its_whole_gradient() -> None:
    graph = siafu.Graph.from_edges([0, 1], [2, 2], num_vertices=3)
    x = torch.zeros(3, 4, requires_grad=True)
    messages = edgewise.gather_messages(graph, x, lambda source, target: 1.0 * source, [], nn.Max())
    (of_x,) = torch.autograd.grad(messages[2].sum(), x)
    torch.testing.assert_close(of_x, torch.tensor([[0.5], [0.5], [0.0]]).expand(3, 4))

"""What one end of an edge says alone is computed on vertices: outputs and gradients stay PyG's, and products leave the edges."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn

import siafu
from siafu.nn.calling import call_model
from siafu.program.record.record import record
from tests.nn.test_against_pyg import wild_graph


class Convolution(pyg.MessagePassing):
    """f(W [x_i, x_j - x_i] + b)."""

    def __init__(self, function: Callable[[Tensor], Tensor], aggr: str) -> None:
        super().__init__(aggr=aggr)
        self.function, self.lin = function, nn.Linear(16, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.function(self.lin(torch.cat([x_i, x_j - x_i], -1)))


RISING = {
    "relu": torch.relu,
    "falls": lambda v: 2 - 3 * torch.tanh(v),
    "twice": lambda v: F.elu(F.leaky_relu(v) + 1) / 2,
    "identity": lambda v: v,
}
OTHERS = {"gelu": F.gelu, "wave": torch.sin}


def compare(layer: nn.Module) -> None:
    """Outputs and gradients, in fp64, with a vertex that has no edge."""
    graph, edge_index, _ = wild_graph(3, weighted=False)
    layer = layer.double()
    x = torch.randn(graph.num_vertices, 8, dtype=torch.float64, requires_grad=True)
    expected, out = layer(x, edge_index), call_model(layer, graph, x)
    torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(out)
    learnt = [x, *layer.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(out, learnt, direction, allow_unused=True),
        torch.autograd.grad(expected, learnt, direction, allow_unused=True),
        rtol=1e-11,
        atol=1e-11,
    )


def sites(layer: nn.Module) -> list[tuple[str, bool, tuple[str, ...]]]:
    """Of a recorded layer: each gather, whether it has a function on edges, and the weights that it reads."""
    graph, _, _ = wild_graph(3, weighted=False)
    graph = graph.replace(x=torch.zeros(graph.num_vertices, 8).numpy())
    found = record(layer, graph, training=True).sites
    return [(site.gather.title, site.apply_edge is not None, site.weights) for site in found]


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("function", RISING)
def test_extremes_of_a_rising_function_are_found_by_vertices(function: str, aggr: str) -> None:
    layer = Convolution(RISING[function], aggr)
    compare(layer)
    assert not any(on_edges for _, on_edges, _ in sites(layer))


@pytest.mark.parametrize("aggr", ["max", "sum", "mean"])
@pytest.mark.parametrize("function", OTHERS)
def test_the_product_of_any_function_leaves_the_edges(function: str, aggr: str) -> None:
    layer = Convolution(OTHERS[function], aggr)
    compare(layer)
    assert [weights for _, on_edges, weights in sites(layer) if on_edges] == [()]


def test_a_linear_message_needs_no_edge_function() -> None:
    layer = Convolution(RISING["identity"], "sum")
    compare(layer)
    assert {(title, on_edges) for title, on_edges, _ in sites(layer)} == {("Sum", False)}


def test_the_second_layer_of_an_mlp_stays_on_the_edges() -> None:
    layer = pyg.EdgeConv(nn.Sequential(nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 5)))
    compare(layer)
    ((_, _, weights),) = [site for site in sites(layer) if site[1]]
    assert weights == ("nn.2.weight", "nn.2.bias")


class Own(siafu.nn.Layer):
    gather = siafu.nn.Sum()

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.lin = function, nn.Linear(16, 5)

    def apply_edge(self, source: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return self.function(torch.cat([target, source], 1) @ self.lin.weight.t() + self.lin.bias)


def test_the_product_of_our_own_edge_functions_leaves_the_edges() -> None:
    graph, _, _ = wild_graph(3, weighted=False)
    graph = graph.replace(x=torch.zeros(graph.num_vertices, 8).numpy())

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Own(torch.tanh)

        def forward(self, graph: siafu.Graph, x: Tensor) -> Tensor:
            return self.layer(graph, x)

    (site,) = record(Model(), graph, training=True).sites
    assert site.apply_edge is not None
    assert site.weights == ()


class Chosen(pyg.MessagePassing):
    """A condition that one end says alone: it stays with the edges, since rows hold numbers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.where(x_j > 0, torch.exp(x_i) * x_j, x_i)


def test_conditions_stay_on_the_edges() -> None:
    compare(Chosen(aggr="sum"))
    assert sites(Chosen(aggr="sum")) == [("Sum", True, ())]

"""Same weights as PyG's layers: outputs and all gradients agree, on graphs that have everything in them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import siafu
from siafu import nn


def wild_graph(seed: int, *, weighted: bool = False) -> tuple[siafu.Graph, torch.Tensor, torch.Tensor | None]:
    """A directed multigraph with self-loops, parallel edges, a hub and isolated vertices."""
    rng = np.random.default_rng(seed)
    vertices, edges = 60, 400
    src = rng.integers(0, vertices - 5, edges)
    dst = rng.integers(0, vertices - 5, edges)
    loops = rng.integers(0, vertices - 5, 12)
    hub = np.full(100, 7)
    src = np.concatenate([src, loops, loops[:4], rng.integers(0, vertices - 5, 100), src[:30]])
    dst = np.concatenate([dst, loops, loops[:4], hub, dst[:30]])
    weights = rng.random(len(src)).astype(np.float32) + 0.1 if weighted else None
    graph = siafu.Graph.from_edges(src, dst, num_vertices=vertices, edge_weight=weights)
    return (
        graph,
        torch.from_numpy(np.stack([src, dst])),
        None if weights is None else torch.from_numpy(weights),
    )


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal within 1e-5 of the largest value."""
    assert ours.shape == theirs.shape
    scale = max(1.0, theirs.detach().abs().max().item())
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * scale)


def compare(
    ours: torch.nn.Module,
    theirs: torch.nn.Module,
    seed: int,
    width: int,
    weighted: bool = False,
    dtype: torch.dtype = torch.float32,
) -> None:
    graph, edge_index, weights = wild_graph(seed, weighted=weighted)
    theirs.load_state_dict(ours.state_dict())
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(graph.num_vertices, width, generator=generator, dtype=dtype)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out = ours(graph, x_ours)
    extra = {} if weights is None else {"edge_weight": weights.to(dtype)}
    expected = theirs(x_theirs, edge_index, **extra)
    close(out, expected)
    direction = torch.randn(expected.shape, generator=generator, dtype=dtype)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    close(x_ours.grad, x_theirs.grad)
    named = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        close(parameter.grad, named[name].grad)


LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.nn.Module], int]] = {
    "gcn narrowing": (lambda: nn.GCNConv(19, 5), lambda: pyg.GCNConv(19, 5), 19),
    "gcn widening": (lambda: nn.GCNConv(5, 37), lambda: pyg.GCNConv(5, 37), 5),
    "gcn without self-loops": (
        lambda: nn.GCNConv(8, 3, add_self_loops=False),
        lambda: pyg.GCNConv(8, 3, add_self_loops=False),
        8,
    ),
    "gcn plain sum": (
        lambda: nn.GCNConv(8, 3, normalize=False),
        lambda: pyg.GCNConv(8, 3, normalize=False),
        8,
    ),
    "transformer heads side by side": (
        lambda: nn.TransformerConv(11, 6, heads=3),
        lambda: pyg.TransformerConv(11, 6, heads=3),
        11,
    ),
    "transformer mean of heads": (
        lambda: nn.TransformerConv(8, 5, heads=2, concat=False),
        lambda: pyg.TransformerConv(8, 5, heads=2, concat=False),
        8,
    ),
    "gat one head": (lambda: nn.GATConv(11, 7), lambda: pyg.GATConv(11, 7), 11),
    "gat heads side by side": (lambda: nn.GATConv(11, 8, heads=8), lambda: pyg.GATConv(11, 8, heads=8), 11),
    "gat odd heads": (lambda: nn.GATConv(11, 13, heads=3), lambda: pyg.GATConv(11, 13, heads=3), 11),
    "gat mean of heads": (
        lambda: nn.GATConv(11, 5, heads=4, concat=False),
        lambda: pyg.GATConv(11, 5, heads=4, concat=False),
        11,
    ),
    "gat wide": (lambda: nn.GATConv(6, 50, heads=4), lambda: pyg.GATConv(6, 50, heads=4), 6),
    "gat stored edges only": (
        lambda: nn.GATConv(6, 8, heads=2, add_self_loops=False),
        lambda: pyg.GATConv(6, 8, heads=2, add_self_loops=False),
        6,
    ),
    "sage mean narrowing": (lambda: nn.SAGEConv(17, 4), lambda: pyg.SAGEConv(17, 4), 17),
    "sage mean widening": (lambda: nn.SAGEConv(4, 17), lambda: pyg.SAGEConv(4, 17), 4),
    "sage max": (lambda: nn.SAGEConv(17, 4, aggr="max"), lambda: pyg.SAGEConv(17, 4, aggr="max"), 17),
    "sage max wide": (lambda: nn.SAGEConv(131, 4, aggr="max"), lambda: pyg.SAGEConv(131, 4, aggr="max"), 131),
    "sage sum": (lambda: nn.SAGEConv(9, 4, aggr="sum"), lambda: pyg.SAGEConv(9, 4, aggr="sum"), 9),
    "gin": (
        lambda: nn.GINConv(nn.MLP([9, 6, 6])),
        lambda: pyg.GINConv(pyg.MLP([9, 6, 6], norm=None)),
        9,
    ),
    "gin learnt eps": (
        lambda: nn.GINConv(nn.MLP([9, 6, 6]), eps=0.3, train_eps=True),
        lambda: pyg.GINConv(pyg.MLP([9, 6, 6], norm=None), eps=0.3, train_eps=True),
        9,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_layer_gives_pygs_outputs_and_gradients(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    ours, theirs, width = LAYERS[name]
    compare(ours(), theirs(), seed, width)


@pytest.mark.parametrize("name", ["gcn narrowing", "gcn without self-loops", "gcn plain sum"])
def test_edge_weights_count_as_in_pyg(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs, width = LAYERS[name]
    compare(ours(), theirs(), 5, width, weighted=True)


@pytest.mark.parametrize("name", ["gcn narrowing", "gat odd heads", "sage max", "gin learnt eps"])
def test_double_precision_agrees_to_twelve_digits(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs, width = LAYERS[name]
    graph, edge_index, _ = wild_graph(3)
    mine, peer = ours().double(), theirs().double()
    peer.load_state_dict(mine.state_dict())
    x = torch.randn(graph.num_vertices, width, dtype=torch.float64)
    torch.testing.assert_close(mine(graph, x), peer(x, edge_index), rtol=1e-12, atol=1e-12)


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.nn.Module]]] = {
    "gcn": (lambda: nn.GCN(10, 16, 3, 4), lambda: pyg.GCN(10, 16, 3, 4)),
    "gat": (lambda: nn.GAT(10, 16, 3, 4, heads=4), lambda: pyg.GAT(10, 16, 3, 4, heads=4)),
    "sage": (lambda: nn.GraphSAGE(10, 16, 3, 4), lambda: pyg.GraphSAGE(10, 16, 3, 4)),
    "sage max": (
        lambda: nn.GraphSAGE(10, 16, 2, 4, aggr="max"),
        lambda: pyg.GraphSAGE(10, 16, 2, 4, aggr="max"),
    ),
    "gin": (lambda: nn.GIN(10, 16, 3, 4), lambda: pyg.GIN(10, 16, 3, 4)),
    "one layer": (lambda: nn.GCN(10, 16, 1, 4), lambda: pyg.GCN(10, 16, 1, 4)),
    "no out_channels": (lambda: nn.GCN(10, 16, 2), lambda: pyg.GCN(10, 16, 2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_models_weights_move_to_pyg_and_give_the_same(name: str) -> None:
    torch.manual_seed(1)
    ours, theirs = MODELS[name]
    compare(ours(), theirs(), 4, 10)


@pytest.mark.parametrize("name", MODELS)
def test_weights_come_back_from_pyg(name: str) -> None:
    torch.manual_seed(2)
    ours, theirs = (make() for make in MODELS[name])
    ours.load_state_dict(theirs.state_dict())
    graph, edge_index, _ = wild_graph(6)
    x = torch.randn(graph.num_vertices, 10)
    close(ours.eval()(graph, x), theirs.eval()(x, edge_index))


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GAT", "GIN"])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max"])
def test_batch_norm_and_jumping_knowledge_are_pygs(name: str, jk: str | None) -> None:
    torch.manual_seed(0)
    theirs = getattr(pyg, name)(8, 6, 3, 5, norm="batch_norm", jk=jk, act="elu").double()
    ours = getattr(siafu.nn, name)(8, 6, 3, 5, norm="batch_norm", jk=jk, act="elu").double()
    ours.load_state_dict(theirs.state_dict())
    graph, edge_index, _ = wild_graph(3)
    x = torch.randn(graph.num_vertices, 8, dtype=torch.float64)
    torch.testing.assert_close(ours(graph, x), theirs(x, edge_index), rtol=1e-9, atol=1e-9)
    for key, value in theirs.state_dict().items():  # the running statistics have moved
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.eval()(graph, x), theirs.eval()(x, edge_index), rtol=1e-9, atol=1e-9)

"""Gathers called by themselves: what they refuse, and what autograd may do with them."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import siafu
from siafu import nn
from siafu.base.errors import BadInput
from siafu.nn.gathers import functions
from tests.toys import edge_index


def some_graph(vertices: int = 50, edges: int = 300) -> siafu.Graph:
    rng = np.random.default_rng(0)
    return siafu.Graph.from_edges(
        rng.integers(0, vertices, edges), rng.integers(0, vertices, edges), num_vertices=vertices
    )


@pytest.mark.parametrize("gather", [nn.Sum(), nn.Mean(), nn.GcnSum(), nn.Max()])
@pytest.mark.parametrize("shape", [(3, 16), (70, 16), (50,), (50, 2, 8)])
def test_rows_of_another_shape_are_refused(gather: nn.Gather, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="one row for each of the 50 vertices"):
        gather(some_graph(), torch.zeros(shape))


@pytest.mark.parametrize(
    ("x", "source", "target", "message"),
    [
        ((50, 15), (50, 2), (50, 2), "15 columns, which 2 heads cannot share"),
        ((50, 16), (50, 1), (50, 2), "source is torch.float32 of shape"),
        ((50, 16), (50, 2), (49, 2), "target has shape"),
        ((50, 16), (50,), (50, 2), "source has shape"),
    ],
)
def test_logits_that_do_not_fit_are_refused(
    x: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        nn.Softmax(heads=2)(some_graph(), torch.zeros(x), torch.zeros(source), torch.zeros(target))


def test_logits_of_another_type_are_refused() -> None:
    logits = torch.zeros(50, 2)
    with pytest.raises(BadInput, match="a logit of x's type"):
        nn.Softmax(heads=2)(some_graph(), torch.zeros(50, 16), logits.double(), logits)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="heads is 0"):
        nn.Softmax(heads=0)
    with pytest.raises(BadInput, match="precision is 'int8'"):
        nn.Sum(precision="int8")


@pytest.mark.parametrize("gather", [nn.Sum(), nn.Max()])
def test_rows_and_gradients_may_be_expanded_from_one(gather: nn.Gather) -> None:
    graph = some_graph()
    row = torch.randn(1, 16)
    torch.testing.assert_close(gather(graph, row.expand(50, 16)), gather(graph, row.repeat(50, 1)))
    x = torch.randn(50, 16, requires_grad=True)
    gather(graph, x).sum(0).dot(torch.ones(16)).backward()
    expected = torch.autograd.grad(gather(graph, x), x, torch.ones(50, 16))[0]
    torch.testing.assert_close(x.grad, expected)


def test_wide_rows_are_packed_one_slab_of_columns_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pack, packed = functions.pack, []

    def watched(*arguments: Any) -> Any:
        assert all(table() is None for table in packed), "two slabs in memory at once"
        table = pack(*arguments)
        packed.append(weakref.ref(table))
        return table

    monkeypatch.setattr(functions, "pack", watched)
    x, graph = torch.randn(50, 300), some_graph()
    found = nn.GcnSum()(graph, x)
    assert len(packed) == 3
    monkeypatch.undo()
    for columns in (slice(0, 20), slice(280, 300)):
        torch.testing.assert_close(found[:, columns], nn.GcnSum()(graph, x[:, columns]))


def softmax(graph: siafu.Graph, x: torch.Tensor) -> torch.Tensor:
    return nn.Softmax(heads=2)(graph, x, x[:, :2], x[:, 2:4])


@pytest.mark.slow
@pytest.mark.parametrize("gather", [nn.Sum(), nn.Max(), softmax])
def test_a_gradient_of_a_gradient_is_refused_by_pytorch(gather: nn.Gather) -> None:
    x = torch.randn(50, 16, requires_grad=True)
    (first,) = torch.autograd.grad(gather(some_graph(), x).pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.pow(2).sum().backward()


@pytest.mark.parametrize("gather", [nn.Max(), softmax])
def test_changing_what_backward_needs_is_an_error_or_changes_nothing(gather: nn.Gather) -> None:
    graph = some_graph()
    x = torch.randn(50, 16, requires_grad=True)
    (expected,) = torch.autograd.grad(gather(graph, x).sum(), x)
    out = gather(graph, x)
    total = (out * 1.0).sum()
    with torch.no_grad():
        out.zero_()
    try:
        total.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        torch.testing.assert_close(x.grad, expected)


def test_an_activation_may_work_in_place() -> None:
    graph = some_graph()
    for layer in (nn.GATConv(16, 8, 2, bias=False), nn.GCNConv(16, 16, bias=False)):
        x = torch.randn(50, 16)
        expected = layer(graph, x).relu()
        torch.testing.assert_close(layer(graph, x).relu_(), expected)


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_slope_agrees_with_pyg(slope: float, dtype: torch.dtype) -> None:
    graph = some_graph()
    ours = nn.GATConv(6, 5, 2, negative_slope=slope).to(dtype)
    theirs = pyg.GATConv(6, 5, 2, negative_slope=slope).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(50, 6, dtype=dtype, requires_grad=True)
    out, expected = ours(graph, x), theirs(x, edge_index(graph))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    gradient = torch.randn_like(out)
    mine = torch.autograd.grad(out, [x, *ours.parameters()], gradient)
    peer = torch.autograd.grad(expected, [x, *theirs.parameters()], gradient)
    for a, b in zip(mine, peer, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_with_a_logit_of_minus_infinity_count_for_nothing(dtype: torch.dtype) -> None:
    """Many of them, so that whole blocks of edges have no other."""
    graph = some_graph(50, 8000)
    x, target = torch.randn(50, 8, dtype=dtype), torch.randn(50, 1, dtype=dtype)
    source = torch.randn(50, 1, dtype=dtype)
    source[:25] = -torch.inf
    out = nn.Softmax(self_loops=False)(graph, x, source, target)
    src, dst = edge_index(graph)
    kept = src >= 25
    fewer = siafu.Graph.from_edges(src[kept].numpy(), dst[kept].numpy(), num_vertices=50)
    source[:25] = 0
    expected = nn.Softmax(self_loops=False)(fewer, x, source, target)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_logit_that_is_not_a_number_shows_in_the_result(dtype: torch.dtype) -> None:
    graph = some_graph()
    logits = torch.zeros(50, 1, dtype=dtype)
    source = logits.clone()
    source[7] = torch.nan
    out = nn.Softmax()(graph, torch.ones(50, 8, dtype=dtype), source, logits)
    reached = np.isin(np.arange(50), edge_index(graph)[1][edge_index(graph)[0] == 7].numpy())
    assert out[torch.from_numpy(reached)].isnan().all()
    assert (
        not out[torch.from_numpy(~reached)][torch.arange(50)[torch.from_numpy(~reached)] != 7].isnan().any()
    )


class Dropping(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def apply_edge(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.lin(source), 0.5) * self.frozen


def test_messages_drop_the_same_in_both_passes_and_frozen_parameters_stay() -> None:
    graph = some_graph()
    layer = Dropping()
    x = torch.zeros(50, 4, requires_grad=True)
    with torch.no_grad():
        layer.lin.bias.fill_(1.0)
    out = layer(graph, x)
    out.sum().backward()
    # Rows are 0 and the bias 1: what came out is how often the bias was kept, which is its gradient.
    torch.testing.assert_close(layer.lin.bias.grad, out.detach().sum(0))
    assert layer.frozen.grad is None


def test_messages_on_a_graph_without_vertices_are_none() -> None:
    empty = siafu.Graph.from_edges([], [], num_vertices=0)
    assert Dropping()(empty, torch.zeros(0, 4)).shape == (0, 4)


def test_a_double_model_takes_single_features() -> None:
    rng = np.random.default_rng(0)
    graph = some_graph().replace(x=rng.standard_normal((50, 6)).astype(np.float32))
    assert nn.GCN(6, 4, 2, 3).double()(graph).dtype == torch.float64

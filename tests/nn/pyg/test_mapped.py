"""Every layer in the table of docs/from-pyg.md: PyG's outputs and gradients, by the gathers that are named there."""

import copy
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.utils import remove_self_loops

import siafu
from siafu.nn.calling import call_model
from siafu.nn.pyg.factors import VertexFactor
from siafu.program.compile import compile_model
from siafu.program.program import Program
from siafu.program.record.record import record
from tests.nn.pyg.documented import Mapped, mapped_layers
from tests.nn.test_against_pyg import wild_graph

MAPPED = mapped_layers()


def test_the_table_is_read() -> None:
    assert len(MAPPED) > 40


@pytest.fixture(params=[torch.float64, torch.float32], ids=["fp64", "fp32"])
def kind(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    """PyG makes some of its constants in the default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def gradients(model: nn.Module, out: Tensor, x: Tensor) -> dict[str, Tensor]:
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    (out * direction).sum().backward()
    found = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    assert x.grad is not None
    return found | {"x": x.grad}


def close(ours: Tensor, theirs: Tensor, name: str) -> None:
    exact = theirs.dtype == torch.float64
    scale = max(1.0, theirs.detach().abs().max().item())
    torch.testing.assert_close(
        ours, theirs, rtol=1e-9 if exact else 1e-5, atol=(1e-9 if exact else 1e-5) * scale, msg=name
    )


def wild_edges(case: Mapped, kind: torch.dtype) -> tuple[siafu.Graph, Tensor, dict[str, Tensor]]:
    """A graph, and what PyG's layer gets of its edges besides `edge_index`."""
    graph, edge_index, weights = wild_graph(3, weighted=case.edges == "weights")
    if weights is not None:
        return graph, edge_index, {"edge_weight": weights.to(kind)}
    if not case.edges:
        return graph, edge_index, {}
    rng = np.random.default_rng(5)
    if case.edges == "features" and case.call.startswith(("GATConv", "PNAConv", "PDNConv")):
        # A sum cannot leave out stored self-loops of which each has features of its own.
        edge_index, _ = remove_self_loops(edge_index)
    edges = edge_index.shape[1]
    attr = torch.from_numpy(rng.standard_normal((edges, 3)).astype(np.float32))
    types = torch.from_numpy(rng.integers(0, 4, edges))
    given = {"edge_attr": attr} if case.edges == "features" else {"edge_type": types}
    vertices = graph.num_vertices
    graph = siafu.Graph.from_edges(*edge_index, num_vertices=vertices, **given)
    return (
        graph,
        edge_index,
        {name: each.to(kind) if each.is_floating_point() else each for name, each in given.items()},
    )


@pytest.mark.parametrize("case", MAPPED, ids=str)
@pytest.mark.slow
def test_a_mapped_layer_gives_pygs_outputs_and_gradients(case: Mapped, kind: torch.dtype) -> None:
    theirs = case.build().to(kind)
    ours = copy.deepcopy(theirs)
    graph, edge_index, extra = wild_edges(case, kind)
    rows = torch.randn(graph.num_vertices, 8, generator=torch.Generator().manual_seed(0), dtype=kind)
    x, same_x = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    expected, out = theirs(x, edge_index, **extra), call_model(ours, graph, same_x)
    close(out, expected, "output")
    wanted, found = gradients(theirs, expected, x), gradients(ours, out, same_x)
    for name, gradient in wanted.items():
        close(found.get(name, torch.zeros_like(gradient)), gradient, name)


@pytest.mark.parametrize("case", MAPPED, ids=str)
@pytest.mark.slow
def test_a_mapped_layer_becomes_the_gathers_that_are_named(case: Mapped) -> None:
    graph, _, _ = wild_edges(case, torch.float32)
    graph = graph.replace(x=np.zeros((graph.num_vertices, 8), np.float32))
    sites = record(case.build(), graph, training=True).sites
    found = {
        "edge program" if site.apply_edge is not None else site.gather.title
        for site in sites
        if not isinstance(site.gather, VertexFactor)
    }
    assert case.becomes <= found
    assert ("edge program" in found) == ("edge program" in case.becomes)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("GCN(20, 8, 3, 4)", siafu.nn.GCN(20, 8, 3, 4)),
        ("GCN(4, 16, 2, 40)", siafu.nn.GCN(4, 16, 2, 40)),
        ("GraphSAGE(20, 8, 3, 4)", siafu.nn.GraphSAGE(20, 8, 3, 4)),
        ("GraphSAGE(4, 16, 2, 40)", siafu.nn.GraphSAGE(4, 16, 2, 40)),
        ("GAT(20, 8, 2, 4, heads=2)", siafu.nn.GAT(20, 8, 2, 4, heads=2)),
        ("GIN(20, 8, 2, 4, norm=None)", siafu.nn.GIN(20, 8, 2, 4)),
    ],
)
@pytest.mark.slow
def test_pygs_models_are_the_programs_of_siafus_own(theirs: str, ours: siafu.nn.GNN) -> None:
    graph, _, _ = wild_graph(3)
    width, classes = ours.config()["in_channels"], ours.config()["out_channels"]
    x = np.zeros((graph.num_vertices, width), np.float32)
    y = np.arange(graph.num_vertices) % classes
    graph = graph.replace(x=x, y=y, train=np.arange(30), num_classes=classes)

    def stages(program: Program) -> list[object]:
        """Kinds and widths: gathers that run once, then phases and gathers in turn."""
        once = [(site.gather.title, site.width) for site in program.cut.folded]
        phases = [
            (
                sorted(program.shapes[name] for name in phase.inputs),
                sorted(program.shapes[name] for name in phase.outputs),
                sorted(op.name for op in phase.programs.forward.ops if op.name in ("mm", "addmm")),
            )
            for phase in program.phases
        ]
        gathers = [[(step.site.gather.title, step.site.width) for step in group] for group in program.gathers]
        return [once, phases, gathers]

    one = compile_model(Mapped(theirs, "", frozenset()).build(), graph, training=True)
    assert stages(one) == stages(compile_model(ours, graph, training=True))


class InPlace(pyg.MessagePassing):
    """Activations that change their input, of which another function is taken afterwards."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.one, self.two = nn.LeakyReLU(0.1, inplace=True), nn.ELU(inplace=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x)
        return out

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        self.one(x_j)
        x_j.mul_(x_i)
        return self.two(x_j) * x_j * x_i


def test_messages_may_be_changed_in_place() -> None:
    graph, edge_index, _ = wild_graph(3)
    x = torch.randn(graph.num_vertices, 4, dtype=torch.float64)
    out = call_model(InPlace(), graph, x.clone())
    close(out, InPlace()(x, edge_index), "output")


def test_other_threads_use_pyg_as_it_is_while_a_model_is_called() -> None:
    found: list[Tensor] = []
    graph, _, _ = wild_graph(3)

    class Asks(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            beside = threading.Thread(target=lambda: found.append(remove_self_loops(REAL)[0]))
            beside.start()
            beside.join()
            return x

    call_model(Asks(), graph, torch.zeros(graph.num_vertices, 1))
    assert torch.equal(found[0], torch.tensor([[0], [1]]))


REAL = torch.tensor([[0, 1], [1, 1]])

"""Edge functions that the edge machine runs, on servers and intervals, against autograd on the whole graph."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from siafu import Graph, nn
from siafu.nn.gathers.edgewise import gather_messages
from siafu.program.compile import compile_model
from siafu.program.program import GatherStep
from siafu.server.gathers.edgewise.edge_code import codes_of
from siafu.server.gathers.edgewise.fused_edge_gather import FusedEdgeGather
from siafu.server.gathers.registry import local_step
from tests.server.phases import partition_of, run_phase, some_graph, tolerance

WIDTH = 6

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda s, t: torch.relu(s - t),
    "gate": lambda s, t: torch.sigmoid(s + t) * s,
    "tanh": lambda s, t: torch.tanh(s * t) - 0.5 * t,
    "leaky": lambda s, t: F.leaky_relu(s - 2 * t, 0.1) / (1 + t * t),
    "silu": lambda s, t: F.silu(s + t) * t,
    "gelu": lambda s, t: F.gelu(s - t),
    "where": lambda s, t: torch.where(s > t, s * s, torch.exp(-t.abs())),
    "columns": lambda s, t: torch.cat([s[:, :3] * t[:, 3:], (s[:, 3:] + t[:, :3]).relu()], 1),
}


class Messages(nn.Layer):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], gather: nn.Gather) -> None:
        super().__init__()
        self.function, self.gather = function, gather

    def propagate(self, graph: Graph, sent: Tensor) -> Tensor:
        """As it is: nothing of it is moved to the vertices."""
        return gather_messages(graph, sent, self.apply_edge, [], self.gather)

    def apply_edge(self, source: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return self.function(source, target)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], gather: nn.Gather) -> None:
        super().__init__()
        self.before, self.edges = torch.nn.Linear(WIDTH, WIDTH), Messages(function, gather)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.edges(graph, self.before(x))


def step_of(graph: Graph, function: Callable[[Tensor, Tensor], Tensor], gather: nn.Gather) -> GatherStep:
    """The gather of a compiled model."""
    filled = graph.replace(
        x=np.ones((graph.num_vertices, WIDTH), np.float32),
        y=np.arange(graph.num_vertices) % WIDTH,
        num_classes=WIDTH,
        train=np.ones(graph.num_vertices, bool),
    )
    (group,) = compile_model(Model(function, gather), filled, training=True).gathers
    return group[0]


def check(
    name: str,
    gather: nn.Gather,
    *,
    weighted: bool = False,
    parts: int = 1,
    count: int = 1,
    whole: bool = False,
    dtype: torch.dtype = torch.float64,
    needed: np.ndarray | None = None,
) -> None:
    graph = some_graph(weighted=weighted, vertices=60, edges=400)
    function = FUNCTIONS[name]
    step = step_of(graph, function, gather)
    x = torch.randn(60, WIDTH, dtype=dtype)
    x = x.round() if whole else x
    gradient = torch.randn(60, WIDTH, dtype=dtype)

    def make(server: object) -> FusedEdgeGather:
        found = local_step(step, server, WIDTH, dtype, needed=needed)  # type: ignore[arg-type]
        assert isinstance(found, FusedEdgeGather)
        return found

    found = run_phase(graph, partition_of(graph, parts), make, [x], gradient, count=count)
    leaf = x.clone().requires_grad_()
    out = gather_messages(graph, leaf, function, [], gather)
    if needed is not None:
        gradient[~torch.from_numpy(needed)] = 0
    (expected,) = torch.autograd.grad(out, [leaf], gradient)
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    torch.testing.assert_close(found.out[rows], out.detach()[rows], **tolerance(dtype))
    torch.testing.assert_close(found.sent[0], expected, **tolerance(dtype))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("gather", [nn.Sum(), nn.Max()], ids=["sum", "max"])
@pytest.mark.slow
def test_functions_of_elements_are_gathered_as_by_autograd(name: str, gather: nn.Gather) -> None:
    check(name, gather, parts=2, count=3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gather", [nn.Sum(), nn.Mean(weighted=True), nn.Max()], ids=["sum", "mean", "max"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.slow
def test_weights_scales_and_types_are_those_of_the_gather(
    gather: nn.Gather, weighted: bool, dtype: torch.dtype
) -> None:
    check("gate", gather, weighted=weighted, dtype=dtype, count=2)


@pytest.mark.slow
def test_equal_maxima_share_the_gradient() -> None:
    check("leaky", nn.Max(), whole=True, parts=2, count=2)


@pytest.mark.parametrize("gather", [nn.Sum(), nn.Max()], ids=["sum", "max"])
@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.slow
def test_rows_that_nobody_needs_are_left_out(gather: nn.Gather, share: float) -> None:
    check("silu", gather, needed=np.random.default_rng(1).random(60) < share, parts=2, count=2)


def test_ranges_have_the_bits_of_the_whole() -> None:
    graph = some_graph(vertices=60, edges=400)
    step = step_of(graph, FUNCTIONS["gate"], nn.Sum())
    x, gradient = torch.randn(60, WIDTH), torch.randn(60, WIDTH)

    def run(count: int) -> list[Tensor]:
        found = run_phase(
            graph,
            partition_of(graph, 1),
            lambda server: local_step(step, server, WIDTH, torch.float32),
            [x],
            gradient,
            count=count,
        )
        return [found.out, *found.sent]

    for one, other in zip(run(1), run(7), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "function",
    [
        lambda s, t: s.softmax(1) * t,
        lambda s, t: s * t[:, :1],
        lambda s, t: (s + t) ** 3,
    ],
    ids=["softmax", "one column", "cube"],
)
def test_other_functions_stay_with_pytorch(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    step = step_of(some_graph(), function, nn.Sum())
    assert step.edge is not None
    assert codes_of(step.edge, greatest=False) is None

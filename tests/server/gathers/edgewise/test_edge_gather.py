"""Edge functions on servers and intervals against autograd on the whole graph."""

import numpy as np
import pytest
import torch

from siafu import Graph, nn
from siafu.base.errors import BadInput
from siafu.nn.gathers.edgewise import gather_messages
from siafu.server import ServerEdges, local_messages
from siafu.server.gathers.edgewise import edge_gather as module
from tests.server.phases import Ran, partition_of, run_phase, some_graph, tolerance

WIDTH, MESSAGE_WIDTH = 5, 3


class Differences(torch.nn.Module):
    """Messages that depend on both ends and on parameters; `whole` ones tie often."""

    def __init__(self, *, whole: bool = False) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(2 * WIDTH, MESSAGE_WIDTH)
        self.whole = whole
        if whole:
            with torch.no_grad():
                self.lin.weight.copy_(torch.randint(-1, 2, self.lin.weight.shape))
                self.lin.bias.fill_(1.0)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        made = self.lin(torch.cat([target, source - target], 1))
        return made if self.whole else torch.tanh(made)


class ByAutograd:
    """An edge program made of a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def messages(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: dict[str, torch.Tensor],
        features: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert len(source) > 0
        assert features is None
        return torch.func.functional_call(self.module, dict(weights), (source, target)).detach()

    def gradients(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: dict[str, torch.Tensor],
        of_messages: torch.Tensor,
        features: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        named = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        ends = [rows.detach().requires_grad_() for rows in (source, target)]
        made = torch.func.functional_call(self.module, named, tuple(ends))
        found = torch.autograd.grad(made, [*ends, *named.values()], of_messages)
        return found[0], found[1], dict(zip(named, found[2:], strict=True))


def both(
    graph: Graph,
    gather: nn.Gather,
    function: Differences,
    dtype: torch.dtype,
    *,
    parts: int,
    count: int,
    needed: np.ndarray | None = None,
) -> tuple[Ran, Ran]:
    """On servers, and on the whole graph."""
    function = function.to(dtype)
    weights = dict(function.named_parameters())
    x = torch.randn(graph.num_vertices, WIDTH, dtype=dtype)
    if function.whole:
        x = x.round()
    gradient = torch.randn(graph.num_vertices, MESSAGE_WIDTH, dtype=dtype)
    found = run_phase(
        graph,
        partition_of(graph, parts),
        lambda server: local_messages(
            gather, ByAutograd(function), server, WIDTH, MESSAGE_WIDTH, dtype, needed=needed
        ),
        [x],
        gradient,
        count=count,
        weights={name: weight.detach() for name, weight in weights.items()},
    )
    leaf = x.clone().requires_grad_()
    out = gather_messages(graph, leaf, function, list(weights.values()), gather)
    if needed is not None:
        gradient[~torch.from_numpy(needed)] = 0
    of_x, *of_weights = torch.autograd.grad(out, [leaf, *weights.values()], gradient)
    return found, Ran(out.detach(), [of_x], dict(zip(weights, of_weights, strict=True)))


def assert_same(found: Ran, expected: Ran, dtype: torch.dtype) -> None:
    torch.testing.assert_close(found.out, expected.out, **tolerance(dtype))
    torch.testing.assert_close(found.sent, expected.sent, **tolerance(dtype))
    torch.testing.assert_close(found.weights, expected.weights, **tolerance(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("parts", "count"), [(1, 1), (1, 4), (2, 3), (3, 2)])
@pytest.mark.parametrize("gather", [nn.Sum(), nn.Mean(), nn.Mean(weighted=True), nn.Max()])
@pytest.mark.slow
def test_messages_are_gathered_as_on_the_whole_graph(
    gather: nn.Gather, parts: int, count: int, weighted: bool, dtype: torch.dtype
) -> None:
    graph = some_graph(weighted=weighted)
    assert_same(*both(graph, gather, Differences(), dtype, parts=parts, count=count), dtype)


@pytest.mark.parametrize("parts", [1, 2])
def test_equal_maxima_share_the_gradient(parts: int) -> None:
    graph = some_graph(symmetric=True)
    function = Differences(whole=True)
    assert_same(*both(graph, nn.Max(), function, torch.float64, parts=parts, count=3), torch.float64)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
@pytest.mark.parametrize("gather", [nn.Sum(), nn.Mean(), nn.Max()])
@pytest.mark.slow
def test_messages_to_rows_that_nobody_needs_are_not_made(gather: nn.Gather, share: float) -> None:
    graph = some_graph(weighted=True, vertices=60, edges=500)
    needed = np.random.default_rng(1).random(60) < share
    found, expected = both(graph, gather, Differences(), torch.float64, parts=2, count=2, needed=needed)
    assert_same(
        found._replace(out=found.out[needed]), expected._replace(out=expected.out[needed]), torch.float64
    )


def test_a_few_edges_at_a_time_give_what_all_at_once_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EDGES_AT_ONCE", 7)
    graph = some_graph()
    assert_same(*both(graph, nn.Max(), Differences(), torch.float64, parts=2, count=2), torch.float64)


def test_a_message_rounded_differently_the_second_time_still_gets_its_gradient() -> None:
    """In a batch of another size, a product of matrices may differ in the last bits."""

    class Trembling(ByAutograd):
        calls = 0

        def messages(self, *arguments: object) -> torch.Tensor:
            made = super().messages(*arguments)  # type: ignore[arg-type]
            self.calls += 1
            return made * (1 + 1e-7 * (-1) ** self.calls)

    function = Differences()
    graph, x = some_graph(), torch.randn(40, WIDTH)
    weights = {name: weight.detach() for name, weight in function.named_parameters()}
    gradient = torch.randn(40, MESSAGE_WIDTH)
    steady, trembling = (
        run_phase(
            graph,
            partition_of(graph, 2),
            lambda server, p=program: local_messages(  # type: ignore[misc]
                nn.Max(), p(function), server, WIDTH, MESSAGE_WIDTH, torch.float32
            ),
            [x],
            gradient,
            weights=weights,
        )
        for program in (ByAutograd, Trembling)
    )
    torch.testing.assert_close(trembling.sent, steady.sent, rtol=1e-4, atol=1e-4)


def test_what_is_not_a_number_shows_in_the_maximum() -> None:
    graph = Graph.from_edges([0, 1, 2, 0], [3, 3, 3, 1], num_vertices=4)
    x = torch.ones(4, WIDTH)
    x[1] = torch.nan
    function = Differences()
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    local = local_messages(
        nn.Max(), ByAutograd(function), server, WIDTH, MESSAGE_WIDTH, torch.float32, training=False
    )
    local.send(0, 4, (x,))
    out = local.forward(0, 4, weights={})
    assert out[3].isnan().all()
    assert (out[[0, 2]] == 0).all()


def test_attention_over_messages_is_refused() -> None:
    graph = some_graph()
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    with pytest.raises(BadInput, match="Sum, Mean or Max, not GcnSum"):
        local_messages(nn.GcnSum(), ByAutograd(Differences()), server, WIDTH, MESSAGE_WIDTH, torch.float32)

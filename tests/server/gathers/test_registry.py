"""Graph phases on servers and intervals against autograd on the whole graph."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu import Graph, nn
from siafu.base.errors import BadInput
from siafu.base.threads import run_all
from siafu.graph.partition import Partition
from siafu.nn.gathers.functions import AttentionFunction, call
from siafu.server import LocalGather, ServerEdges, local_gather
from tests.graph.partition.graphs import partitioned
from tests.server.phases import Ran, partition_of, run_phase, some_graph, tolerance

SEED = 77
Whole = Callable[[Graph, list[torch.Tensor]], torch.Tensor]

GATHERS = {
    "sum": nn.Sum(),
    "unweighted": nn.Sum(weighted=False),
    "mean": nn.Mean(),
    "gcn": nn.GcnSum(),
    "gcn without loops": nn.GcnSum(self_loops=False),
    "max": nn.Max(),
    "softmax": nn.Softmax(heads=2),
    "softmax of stored edges": nn.Softmax(heads=3, self_loops=False),
}


def inputs(gather: nn.Gather, graph: Graph, width: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Small whole numbers for Max: they tie."""
    if isinstance(gather, nn.Max):
        return [torch.randint(-2, 3, (graph.num_vertices, width)).to(dtype)]
    if not isinstance(gather, nn.Softmax):
        return [torch.randn(graph.num_vertices, width, dtype=dtype)]
    rows = torch.randn(graph.num_vertices, width * gather.heads, dtype=dtype)
    return [rows, *(torch.randn(graph.num_vertices, gather.heads, dtype=dtype) for _ in range(2))]


def on_whole_graph(
    gather: nn.Gather,
    graph: Graph,
    sent: list[torch.Tensor],
    gradient: torch.Tensor,
    dropout: float = 0.0,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaves = [rows.clone().requires_grad_() for rows in sent]
    if isinstance(gather, nn.Softmax):
        out = call(AttentionFunction, *leaves, graph, gather, dropout, SEED)
    else:
        out = gather(graph, *leaves)  # type: ignore[operator]
    return out.detach(), list(torch.autograd.grad(out, leaves, gradient))


def assert_same(found: Ran, expected: tuple[torch.Tensor, list[torch.Tensor]], dtype: torch.dtype) -> None:
    torch.testing.assert_close(found.out, expected[0], **tolerance(dtype))
    for mine, theirs in zip(found.sent, expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, **tolerance(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("parts", "count"), [(1, 1), (1, 5), (2, 3), (3, 1), (3, 4)])
@pytest.mark.parametrize("name", GATHERS)
def test_servers_and_intervals_gather_as_the_whole_graph(
    name: str, parts: int, count: int, symmetric: bool, dtype: torch.dtype
) -> None:
    gather = GATHERS[name]
    graph = some_graph(symmetric=symmetric, weighted=True)
    sent = inputs(gather, graph, 5, dtype)
    gradient = torch.randn_like(sent[0])
    found = run_phase(
        graph,
        partition_of(graph, parts),
        lambda server: local_gather(gather, server, sent[0].shape[1], dtype),
        sent,
        gradient,
        count=count,
    )
    assert_same(found, on_whole_graph(gather, graph, sent, gradient), dtype)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("self_loops", [False, True])
def test_attention_drops_the_same_edges_under_any_partition(parts: int, self_loops: bool) -> None:
    graph, gather = some_graph(), nn.Softmax(heads=2, self_loops=self_loops)
    sent = inputs(gather, graph, 8, torch.float64)
    gradient = torch.randn_like(sent[0])
    found = run_phase(
        graph,
        partition_of(graph, parts),
        lambda server: local_gather(gather, server, 16, torch.float64),
        sent,
        gradient,
        count=3,
        dropout=0.4,
        seed=SEED,
    )
    expected = on_whole_graph(gather, graph, sent, gradient, dropout=0.4)
    assert_same(found, expected, torch.float64)
    without = on_whole_graph(gather, graph, sent, gradient)
    assert not torch.allclose(expected[0], without[0])


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.slow
def test_rows_that_nobody_needs_are_left_out(name: str, share: float, parts: int) -> None:
    gather, dtype = GATHERS[name], torch.float64
    graph = some_graph(weighted=True, vertices=60, edges=500)
    sent = inputs(gather, graph, 5, dtype)
    if isinstance(gather, nn.Softmax):
        sent[1] *= 300  # weights of edges that are left out must not overflow
    needed = np.random.default_rng(1).random(60) < share
    gradient = torch.randn_like(sent[0])
    found = run_phase(
        graph,
        partition_of(graph, parts),
        lambda server: local_gather(gather, server, sent[0].shape[1], dtype, needed=needed),
        sent,
        gradient,
        count=3,
    )
    gradient[~torch.from_numpy(needed)] = 0
    out, of_sent = on_whole_graph(gather, graph, sent, gradient)
    assert_same(found._replace(out=found.out[needed]), (out[needed], of_sent), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("gather", [nn.GcnSum("bf16"), nn.Max("bf16"), nn.Softmax("bf16", heads=2)])
def test_rows_in_bf16_are_rounded_as_on_the_whole_graph(gather: nn.Gather, parts: int) -> None:
    graph = some_graph()
    sent = [
        rows + 0.01 * torch.randn_like(rows) for rows in inputs(gather, graph, 9, torch.float32)
    ]  # so that rounding shows
    gradient = torch.randn_like(sent[0])
    found = run_phase(
        graph,
        partition_of(graph, parts),
        lambda server: local_gather(gather, server, sent[0].shape[1]),
        sent,
        gradient,
        count=2,
    )
    assert_same(found, on_whole_graph(gather, graph, sent, gradient), torch.float32)


@pytest.mark.parametrize("width", [1, 128, 130, 300])
@pytest.mark.slow
def test_wide_rows_are_those_of_the_whole_graph(width: int) -> None:
    graph = some_graph()
    sent = [torch.randn(40, width, dtype=torch.float64)]
    gradient = torch.randn_like(sent[0])
    found = run_phase(
        graph,
        partition_of(graph, 2),
        lambda server: local_gather(nn.GcnSum(), server, width, torch.float64),
        sent,
        gradient,
        count=2,
    )
    assert_same(found, on_whole_graph(nn.GcnSum(), graph, sent, gradient), torch.float64)


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("parts", [1, 2])
def test_blocks_that_fit_the_cache_change_nothing(
    parts: int, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siafu.kernels.blocking.near_cache_bytes", lambda: 2048)
    graph = some_graph(edges=4000, weighted=True)
    needed = None if share is None else np.random.default_rng(1).random(40) < share
    sent, gradient = [torch.randn(40, 16, dtype=torch.float64)], torch.randn(40, 16, dtype=torch.float64)
    blocked = []

    def make(server: ServerEdges) -> LocalGather:
        gather = local_gather(nn.GcnSum(), server, 16, torch.float64, needed=needed)
        blocked.append(gather.walks.forward.blocks(128, np.float64, self_loops=False))
        return gather

    found = run_phase(graph, partition_of(graph, parts), make, sent, gradient, count=3)
    assert all(blocks is not None for blocks in blocked)
    if needed is not None:
        gradient[~torch.from_numpy(needed)] = 0
    out, of_sent = on_whole_graph(nn.GcnSum(), graph, sent, gradient)
    rows = slice(None) if needed is None else needed
    assert_same(found._replace(out=found.out[rows]), (out[rows], of_sent), torch.float64)


@settings(deadline=None, max_examples=60)
@given(partitioned(weighted=True), st.integers(1, 4), st.sampled_from(sorted(GATHERS)), st.floats(0, 1))
def test_backward_is_the_adjoint_of_forward_for_any_partition(
    case: tuple[Graph, Partition], count: int, name: str, share: float
) -> None:
    """⟨out, gradient⟩ is ⟨x, gradient of x⟩ over the needed rows: gathers are linear in x, given ties and logits."""
    graph, partition = case
    gather = GATHERS[name]
    sent = inputs(gather, graph, 3, torch.float64)
    gradient = torch.randn_like(sent[0])
    needed = np.random.default_rng(3).random(graph.num_vertices) < share
    found = run_phase(
        graph,
        partition,
        lambda server: local_gather(gather, server, sent[0].shape[1], torch.float64, needed=needed),
        sent,
        gradient,
        count=count,
    )
    forth = (found.out * gradient)[torch.from_numpy(needed)].sum()
    torch.testing.assert_close(forth, (sent[0] * found.sent[0]).sum(), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_a_server_that_only_evaluates_keeps_nothing_for_a_backward_pass() -> None:
    graph = some_graph()
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    for gather in GATHERS.values():
        sent = inputs(gather, graph, 4, torch.float32)
        width = sent[0].shape[1]
        local = local_gather(gather, server, width, training=False)
        assert local.backward_tables == []
        assert local.held_bytes < local_gather(gather, server, width).held_bytes
        local.send(0, 40, tuple(sent))
        expected = on_whole_graph(gather, graph, sent, torch.zeros_like(sent[0]))[0]
        torch.testing.assert_close(local.forward(0, 40), expected, **tolerance(torch.float32))


def test_a_server_alone_walks_the_graphs_own_arrays() -> None:
    graph = some_graph()
    walks = ServerEdges.of(graph, partition_of(graph, 1), 0).walks()
    assert walks.forward.edges.indices is graph.indices
    assert walks.backward.edges.indices is graph.out_edges.indices


def test_phases_share_restricted_edges_and_blocks() -> None:
    graph = some_graph()
    server = ServerEdges.of(graph, partition_of(graph, 2), 0)
    needed = np.arange(40) % 2 == 0
    assert server.walks(needed) is server.walks(needed.copy())
    assert server.walks(needed).forward.edges is server.walks().forward.edges
    assert server.walks(np.ones(40, bool)) is server.walks()


def test_an_unknown_gather_is_refused_by_name() -> None:
    graph = some_graph()
    with pytest.raises(BadInput, match="a gather of type Gather"):
        local_gather(nn.Gather(), ServerEdges.of(graph, partition_of(graph, 1), 0), 4)


def test_rows_of_another_shape_are_refused() -> None:
    graph = some_graph()
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    for gather in GATHERS.values():
        local = local_gather(gather, server, 12)
        sent = [torch.zeros(10, 12)]
        if isinstance(gather, nn.Softmax):
            sent += [torch.zeros(10, gather.heads)] * 2
        with pytest.raises(ValueError, match=r"got rows of shape \[10, 12\], not \[11, 12\]"):
            local.send(0, 11, tuple(sent))
        with pytest.raises(ValueError, match=r"got rows of shape \[10, 13\], not \[10, 12\]"):
            local.send_back(5, 15, torch.zeros(10, 13))


def test_ranges_may_be_worked_on_at_the_same_time() -> None:
    graph = some_graph(vertices=300, edges=9000)
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    for gather in GATHERS.values():
        sent = inputs(gather, graph, 8, torch.float32)
        width = sent[0].shape[1]
        spans = [(first, first + 20) for first in range(0, 300, 20)]
        alone, together = (local_gather(gather, server, width) for _ in range(2))
        for local in (alone, together):
            local.send(0, 300, tuple(sent))
        expected = alone.forward(0, 300)
        parts = run_all(lambda span, local=together: local.forward(*span), spans)
        torch.testing.assert_close(torch.cat(parts), expected, rtol=0, atol=0)
        for local in (alone, together):
            local.send_back(0, 300, sent[0])
        back = alone.backward(0, 300).sent[0]
        parts = run_all(lambda span, local=together: local.backward(*span).sent[0], spans)
        torch.testing.assert_close(torch.cat(parts), back, rtol=0, atol=0)

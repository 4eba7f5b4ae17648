"""Edge functions whose rows are on disk give what those with rows in memory do, bit for bit, and move the bytes that they should."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu import nn
from siafu.nn.gathers.gather import Gather
from siafu.server.edges import ServerEdges
from siafu.server.gathers.edgewise import edge_gather
from siafu.server.gathers.gather_tables import DiskTables, HeldTables, ThreadBuffers
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.gathers.on_disk import collected_sources
from siafu.server.gathers.on_disk.disk_edge_gather import DiskEdgeGather
from siafu.server.gathers.on_disk.disk_edge_tables import DiskEdgeTables
from siafu.server.gathers.on_disk.disk_fused_edge_gather import DiskFusedEdgeGather
from siafu.server.gathers.registry import local_messages, local_step
from siafu.server.memory.disk_share import DiskCut, DiskShare
from siafu.tables import ScratchDirectory
from tests.server.gathers.edgewise.test_edge_gather import MESSAGE_WIDTH, WIDTH, ByAutograd, Differences
from tests.server.gathers.edgewise.test_fused_edge_gather import FUNCTIONS, step_of
from tests.server.gathers.edgewise.test_fused_edge_gather import WIDTH as FUSED_WIDTH
from tests.server.phases import Ran, partition_of, run_phase, some_graph

Make = Callable[[ServerEdges], LocalGather]
GATHERS: dict[str, Gather] = {"sum": nn.Sum(), "mean": nn.Mean(), "max": nn.Max()}


class GathersAgain:
    """As tensor phases use it: what gradients are made of is gathered just before."""

    def __init__(self, local: DiskEdgeTables, weights: dict[str, torch.Tensor]) -> None:
        self._local, self._weights, self._send_back = local, weights, local.send_back

    def __call__(self, first: int, last: int, gradient: torch.Tensor) -> None:
        self._local.forward(first, last, weights=self._weights)
        self._send_back(first, last, gradient)


def on_disk(make: Make, share: DiskShare, weights: dict[str, torch.Tensor]) -> Make:
    def made(server: ServerEdges) -> LocalGather:
        found = make(server.placing(DiskTables(server.own, ThreadBuffers(), "", share)))
        assert isinstance(found, DiskEdgeTables)
        found.send_back = GathersAgain(found, weights)  # type: ignore[method-assign]
        return found

    return made


def in_memory(make: Make) -> Make:
    return lambda server: make(server.placing(HeldTables(server.own)))


def assert_equal(found: Ran, expected: Ran, needed: np.ndarray | None) -> None:
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    assert torch.equal(found.out[rows], expected.out[rows])
    assert expected.sent[0].abs().max() > 0
    assert torch.equal(found.sent[0], expected.sent[0])
    for name, of_weights in expected.weights.items():
        assert of_weights.abs().max() > 0
        assert torch.equal(found.weights[name], of_weights)


CASES = {
    "groups": st.integers(1, 5),
    "partitions": st.integers(1, 6),
    "count": st.integers(1, 4),
    "parts": st.integers(1, 4),
    "some": st.booleans(),
    "seed": st.integers(0, 2**32),
}


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True], ids=["program", "machine"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("name", GATHERS)
@settings(max_examples=4)
@given(**CASES)
def test_every_bit_is_that_of_a_gather_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    dtype: torch.dtype,
    fused: bool,
    groups: int,
    partitions: int,
    count: int,
    parts: int,
    some: bool,
    seed: int,
) -> None:
    graph, gather = some_graph(symmetric=seed % 2 == 0, weighted=seed % 3 == 0, edges=150), GATHERS[name]
    torch.manual_seed(seed % 1000)
    needed = np.random.default_rng(seed).random(graph.num_vertices) < 0.5 if some else None
    share = DiskShare(DiskCut(tmp_path_factory.mktemp("scratch"), groups, partitions))
    weights: dict[str, torch.Tensor] = {}
    width = made_width = FUSED_WIDTH
    if fused:
        step = step_of(graph, FUNCTIONS["gate"], gather)

        def make(server: ServerEdges) -> LocalGather:
            return local_step(step, server, FUSED_WIDTH, dtype, needed=needed)
    else:
        width, made_width = WIDTH, MESSAGE_WIDTH
        function = Differences(whole=name == "max").to(dtype)
        weights = {key: each.detach() for key, each in function.named_parameters()}

        def make(server: ServerEdges) -> LocalGather:
            program, sizes = ByAutograd(function), (WIDTH, MESSAGE_WIDTH, dtype)
            return local_messages(gather, program, server, *sizes, needed=needed)

    x = torch.randn(graph.num_vertices, width, dtype=dtype)
    gradient = torch.randn(graph.num_vertices, made_width, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collected_sources, "OWN_ROWS", 7)
        patch.setattr(collected_sources, "collected_bytes", lambda *_: 0)  # groups, however small the graph
        patch.setattr(edge_gather, "EDGES_AT_ONCE", 40)
        found, expected = (
            run_phase(graph, partition_of(graph, parts), each, [x], gradient, count=count, weights=weights)
            for each in (on_disk(make, share, weights), in_memory(make))
        )
    assert_equal(found, expected, needed)


@pytest.mark.parametrize("fused,whole", [(True, False), (False, False), (True, True)])
def test_a_gather_moves_the_bytes_of_the_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fused: bool, whole: bool
) -> None:
    monkeypatch.setattr(collected_sources, "OWN_ROWS", 64)
    if not whole:
        monkeypatch.setattr(collected_sources, "collected_bytes", lambda *_: 0)
    graph = some_graph(vertices=1000, edges=4000)
    scratch = ScratchDirectory(tmp_path)
    share = DiskShare(DiskCut(tmp_path, 3, 5), scratch)
    made: list[DiskEdgeTables] = []
    function = Differences()
    weights = {} if fused else {key: each.detach() for key, each in function.named_parameters()}
    step = step_of(graph, FUNCTIONS["gate"], GATHERS["sum"])

    def make(server: ServerEdges) -> LocalGather:
        if fused:
            found = local_step(step, server, FUSED_WIDTH, torch.float32)
        else:
            found = local_messages(
                GATHERS["sum"], ByAutograd(function), server, WIDTH, MESSAGE_WIDTH, torch.float32
            )
        made.append(cast(DiskEdgeTables, found))
        assert isinstance(found, DiskFusedEdgeGather if fused else DiskEdgeGather)
        return found

    x = torch.randn(graph.num_vertices, FUSED_WIDTH if fused else WIDTH)
    gradient = torch.randn(graph.num_vertices, FUSED_WIDTH if fused else MESSAGE_WIDTH)
    run_phase(graph, partition_of(graph, 1), on_disk(make, share, weights), [x], gradient, weights=weights)
    row_bytes, page, rows = 64, 4096, graph.num_vertices
    groups, partitions = made[0]._forth.groups, made[0]._forth.partitions
    assert len(groups) == (1 if whole else 3)

    def pages(first: int, last: int) -> int:
        return -(-last * row_bytes // page) - first * row_bytes // page

    def collected(edges: np.ndarray, ends: np.ndarray) -> int:
        """A group reads every partition that has its rows or one that its edges lead to."""
        found = 0
        for first, last in groups:
            read = {*range(first, last), *ends[(edges >= first) & (edges < last)].tolist()}
            parts = [(0, rows)] if whole else partitions
            found += sum(pages(low, high) for low, high in parts if any(low <= each < high for each in read))
        return found

    into = np.repeat(np.arange(rows), np.diff(graph.indptr))
    forth, back = collected(into, graph.indices), collected(graph.indices, into)
    own = sum(pages(low, min(low + 64, last)) for first, last in groups for low in range(first, last, 64))
    # The edge machine reads own rows 64 at a time: rows and shares. A program reads those of its one piece at once, from the first
    # to the last row that has edges.
    out_of = np.flatnonzero(np.bincount(graph.indices, minlength=rows))
    pieces = pages(int(into[0]), int(into[-1]) + 1) + pages(int(out_of[0]), int(out_of[-1]) + 1)
    own = 2 * own if fused else pieces
    # Rows forth, again before gradients are sent, when they are sent back, and on the way back; rows and shares back.
    assert scratch.traffic.bytes_read == (3 * forth + 2 * back + pages(0, rows) + own) * page
    assert scratch.traffic.bytes_written == 3 * pages(0, rows) * page

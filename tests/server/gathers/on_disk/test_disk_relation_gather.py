"""Sums by type whose sources are on disk are those of sources in memory, bit for bit, and move the bytes that they should."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu import Graph
from siafu.nn.gathers.relation_sum import RelationSum
from siafu.server.edges import ServerEdges
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.gathers.on_disk import disk_relation_gather
from siafu.server.gathers.on_disk.disk_relation_gather import DiskRelationGather
from siafu.server.gathers.registry import local_gather
from siafu.server.memory.disk_share import SLOTS, DiskCut, DiskShare, equal_ranges
from siafu.tables import ScratchDirectory
from siafu.tables.partition_reader import plan_reads
from tests.server.phases import partition_of, run_phase, some_graph

WIDTH, OUT, TYPES = 12, 20, 5
WEIGHTS = {"bases": torch.randn(2, WIDTH, OUT), "shares": torch.randn(TYPES, 2)}


def typed_graph(*, symmetric: bool = False, vertices: int = 40, edges: int = 220) -> Graph:
    """Self-loops, parallel edges of equal and of other types, a hub, and vertices without any edge."""
    graph = some_graph(symmetric=symmetric, vertices=vertices, edges=edges)
    types = np.random.default_rng(1).integers(0, TYPES - 1, graph.num_edges)
    return replace(graph, edge_type=types.astype(np.int32))


Local = TypeVar("Local", bound=LocalGather)


def named(local: Local) -> Local:
    """As a model's step names its parameters."""
    local.weight_names = local.learnt = ("bases", "shares")
    return local


@pytest.mark.slow
@pytest.mark.parametrize(
    "gather",
    [
        RelationSum("fp32", TYPES, OUT, mean=True, matrices="bases"),
        RelationSum("bf16", TYPES, OUT, mean=False, matrices="bases"),
    ],
    ids=str,
)
@settings(max_examples=8)
@given(
    groups=st.integers(1, 5),
    partitions=st.integers(1, 6),
    count=st.integers(1, 4),
    parts=st.integers(1, 4),
    some=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_bit_is_that_of_a_gather_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    gather: RelationSum,
    groups: int,
    partitions: int,
    count: int,
    parts: int,
    some: bool,
    seed: int,
) -> None:
    graph = typed_graph(symmetric=seed % 2 == 0)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(graph.num_vertices, WIDTH, generator=generator)
    gradient = torch.randn(graph.num_vertices, OUT, generator=generator)
    needed = np.random.default_rng(seed).random(graph.num_vertices) < 0.5 if some else None
    share = DiskShare(DiskCut(tmp_path_factory.mktemp("scratch"), groups, partitions))

    def on_disk(server: ServerEdges) -> DiskRelationGather:
        return named(DiskRelationGather(gather, server, WIDTH, torch.float32, share, needed=needed))

    found, expected = (
        run_phase(graph, partition_of(graph, parts), make, [x], gradient, count=count, weights=WEIGHTS)
        for make in (on_disk, lambda server: named(local_gather(gather, server, WIDTH, needed=needed)))
    )
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    assert torch.equal(found.out[rows], expected.out[rows])
    assert torch.equal(found.sent[0], expected.sent[0])
    for name, of_weights in expected.weights.items():
        assert of_weights.abs().max() > 0
        assert torch.equal(found.weights[name], of_weights)


@pytest.mark.parametrize("groups,partitions", [(2, 4), (5, 3)])
def test_a_gather_moves_the_bytes_of_the_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int, partitions: int
) -> None:
    monkeypatch.setattr(disk_relation_gather, "_ROWS_AT_ONCE", 64)
    graph = typed_graph(vertices=1000, edges=4000)
    scratch = ScratchDirectory(tmp_path)
    share = DiskShare(DiskCut(tmp_path, groups, partitions), scratch)
    x, gradient = torch.randn(graph.num_vertices, WIDTH), torch.randn(graph.num_vertices, OUT)
    gather = RelationSum("fp32", TYPES, OUT, matrices="bases")
    made: list[DiskRelationGather] = []

    def make(server: ServerEdges) -> DiskRelationGather:
        made.append(named(DiskRelationGather(gather, server, WIDTH, torch.float32, share)))
        return made[0]

    run_phase(graph, partition_of(graph, 1), make, [x], gradient, count=1, weights=WEIGHTS)
    page, vertices = 4096, graph.num_vertices

    def pages(row_bytes: int, first: int, last: int) -> int:
        return -(-last * row_bytes // page) - first * row_bytes // page

    def gathered(row_bytes: int) -> int:
        parts = equal_ranges(vertices, partitions)
        order = plan_reads([*range(len(parts))] * groups, SLOTS)
        return sum(pages(row_bytes, *parts[read.partition]) for read in order)

    # Gradients of own rows are read up to where each group ends, 64 at a time.
    runs = made[0]._again.runs.rows
    ends = [int(np.searchsorted(runs, last, "right")) - 1 for _, last in made[0]._again.groups._groups]
    assert len(ends) == groups
    own = sum(
        pages(128, low, min(low + 64, last))
        for first, last in zip([0, *ends], ends, strict=False)
        for low in range(first, last, 64)
    )
    # Rows forth, and again for the gradients of the matrices; gradients back.
    assert scratch.traffic.bytes_read == (2 * gathered(64) + gathered(128) + own) * page
    assert scratch.traffic.bytes_written == (pages(64, 0, vertices) + pages(128, 0, vertices)) * page

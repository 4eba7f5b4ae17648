"""Sums whose sources are on disk are those of sources in memory, bit for bit, and move the bytes that they should."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import SiafuError
from siafu.nn import GcnSum, Mean, Sum
from siafu.server.edges import ServerEdges
from siafu.server.gathers.on_disk.disk_sum_gather import DiskSumGather
from siafu.server.gathers.registry import local_gather
from siafu.server.memory.disk_share import SLOTS, DiskCut, DiskShare, equal_ranges
from siafu.tables import ScratchDirectory
from siafu.tables.partition_reader import plan_reads
from tests.server.phases import partition_of, run_phase, some_graph
from tests.tables.faulty_disk import FaultyDisk

WIDTH = 20


@pytest.mark.parametrize("gather", [Sum(), Mean(), GcnSum(), Sum(weighted=True, precision="bf16")], ids=str)
@settings(max_examples=6)
@given(
    groups=st.integers(1, 5),
    partitions=st.integers(1, 6),
    count=st.integers(1, 4),
    parts=st.integers(1, 4),
    buckets=st.booleans(),
    some=st.booleans(),
    seed=st.integers(0, 2**32),
)
@pytest.mark.slow
def test_every_bit_is_that_of_a_gather_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    gather: Sum,
    groups: int,
    partitions: int,
    count: int,
    parts: int,
    buckets: bool,
    some: bool,
    seed: int,
) -> None:
    graph = some_graph(weighted=gather.weighted, symmetric=seed % 2 == 0)
    generator = torch.Generator().manual_seed(seed)
    x, gradient = torch.randn(2, graph.num_vertices, WIDTH, generator=generator)
    needed = np.random.default_rng(seed).random(graph.num_vertices) < 0.5 if some else None
    share = DiskShare(DiskCut(tmp_path_factory.mktemp("scratch"), groups, partitions, buckets=buckets))

    def on_disk(server: ServerEdges) -> DiskSumGather:
        return DiskSumGather(gather, server, WIDTH, torch.float32, share, needed=needed)

    found, expected = (
        run_phase(graph, partition_of(graph, parts), make, [x], gradient, count=count)
        for make in (on_disk, lambda server: local_gather(gather, server, WIDTH, needed=needed))
    )
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    assert torch.equal(found.out[rows], expected.out[rows])
    assert torch.equal(found.sent[0], expected.sent[0])


@pytest.mark.parametrize(
    "groups,partitions,slots", [(1, 1, SLOTS), (2, 4, SLOTS), (5, 3, SLOTS), (4, 8, 5), (4, 8, 8)]
)
def test_a_gather_moves_the_bytes_of_the_formula(
    tmp_path: Path, groups: int, partitions: int, slots: int
) -> None:
    graph = some_graph(vertices=1000, edges=4000)
    scratch = ScratchDirectory(tmp_path)
    share = DiskShare(DiskCut(tmp_path, groups, partitions, slots=slots), scratch)
    x = torch.randn(graph.num_vertices, WIDTH)

    def make(server: ServerEdges) -> DiskSumGather:
        return DiskSumGather(Sum(), server, WIDTH, torch.float32, share)

    run_phase(graph, partition_of(graph, 1), make, [x], x, count=3)
    row_bytes, page = 128, 4096
    ranges = equal_ranges(graph.num_vertices, partitions)
    once = sum(
        -(-last * row_bytes // page) - first * row_bytes // page
        for read in plan_reads([*range(len(ranges))] * groups, slots)
        for first, last in [ranges[read.partition]]
    )
    table = -(-graph.num_vertices * row_bytes // page)
    assert scratch.traffic.bytes_read == 2 * once * page  # forth and back
    assert scratch.traffic.bytes_written == 2 * table * page


def test_a_pass_that_was_broken_off_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    graph = some_graph(vertices=300, edges=900)
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    share = DiskShare(DiskCut(tmp_path, 3, 4))
    gather, memory = (
        DiskSumGather(Sum(), server, WIDTH, torch.float32, share),
        local_gather(Sum(), server, WIDTH),
    )
    gather.send(0, 50, (torch.randn(50, WIDTH),))
    gather.forward(0, 120)
    gather.begin_anew()
    x = torch.randn(300, WIDTH)
    for each in (gather, memory):
        each.send(0, 130, (x[:130],))
        each.send(130, 300, (x[130:],))
    assert torch.equal(gather.forward(0, 300), memory.forward(0, 300))


def test_a_disk_that_fails_is_told_where_rows_are_gathered(tmp_path: Path) -> None:
    graph = some_graph()
    server = ServerEdges.of(graph, partition_of(graph, 1), 0)
    share = DiskShare(DiskCut(tmp_path, 1, 2), ScratchDirectory(tmp_path, FaultyDisk(kind="read")))
    gather = DiskSumGather(Sum(), server, WIDTH, torch.float32, share)
    gather.send(0, 40, (torch.randn(40, WIDTH),))
    with pytest.raises(SiafuError, match="cannot read a scratch file"):
        gather.forward(0, 40)
    gather.begin_anew()

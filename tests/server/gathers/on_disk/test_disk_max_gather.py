"""Maxima whose sources are on disk are those of sources in memory, bit for bit, and move the bytes that they should."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.nn import Max
from siafu.server.edges import ServerEdges
from siafu.server.gathers.on_disk.disk_max_gather import DiskMaxGather
from siafu.server.gathers.registry import local_gather
from siafu.server.memory.disk_share import SLOTS, DiskCut, DiskShare, equal_ranges
from siafu.tables import ScratchDirectory
from siafu.tables.partition_reader import plan_reads
from tests.server.phases import partition_of, run_phase, some_graph

WIDTH = 20


class GathersAgain(DiskMaxGather):
    """As tensor phases use it: what gradients are made of is gathered just before."""

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        self.forward(first, last)
        super().send_back(first, last, gradient)


@pytest.mark.parametrize(
    "gather,dtype", [(Max(), torch.float64), (Max(precision="bf16"), torch.float32)], ids=str
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
@pytest.mark.slow
def test_every_bit_is_that_of_a_gather_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    gather: Max,
    dtype: torch.dtype,
    groups: int,
    partitions: int,
    count: int,
    parts: int,
    some: bool,
    seed: int,
) -> None:
    graph = some_graph(symmetric=seed % 2 == 0)
    generator = torch.Generator().manual_seed(seed)
    x, gradient = torch.randn(2, graph.num_vertices, WIDTH, generator=generator, dtype=dtype)
    x = (2 * x).round()  # many are equal, and share
    needed = np.random.default_rng(seed).random(graph.num_vertices) < 0.5 if some else None
    share = DiskShare(DiskCut(tmp_path_factory.mktemp("scratch"), groups, partitions))

    def on_disk(server: ServerEdges) -> DiskMaxGather:
        return GathersAgain(gather, server, WIDTH, dtype, share, needed=needed)

    found, expected = (
        run_phase(graph, partition_of(graph, parts), make, [x], gradient, count=count)
        for make in (on_disk, lambda server: local_gather(gather, server, WIDTH, dtype, needed=needed))
    )
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    assert torch.equal(found.out[rows], expected.out[rows])
    assert torch.equal(found.sent[0], expected.sent[0])


@pytest.mark.slow
def test_a_gather_moves_the_bytes_of_the_formula(tmp_path: Path) -> None:
    graph, groups, partitions = some_graph(vertices=1000, edges=4000), 3, 5
    scratch = ScratchDirectory(tmp_path)
    share = DiskShare(DiskCut(tmp_path, groups, partitions), scratch)
    x = torch.randn(graph.num_vertices, WIDTH)

    def make(server: ServerEdges) -> DiskMaxGather:
        return GathersAgain(Max(), server, WIDTH, torch.float32, share)

    run_phase(graph, partition_of(graph, 1), make, [x], x, count=3)
    row_bytes, page = 128, 4096

    def pages(first: int, last: int) -> int:
        return -(-last * row_bytes // page) - first * row_bytes // page

    parts = equal_ranges(graph.num_vertices, partitions)
    once = sum(pages(*parts[read.partition]) for read in plan_reads([*range(partitions)] * groups, SLOTS))
    own = sum(pages(*group) for group in equal_ranges(graph.num_vertices, groups))
    # Forth, again before gradients are sent, and back: maxima and shares, and the rows that they are compared with.
    assert scratch.traffic.bytes_read == (4 * once + own) * page
    assert scratch.traffic.bytes_written == 3 * pages(0, graph.num_vertices) * page

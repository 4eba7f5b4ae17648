"""Attention whose rows are on disk is that of rows in memory, bit for bit, and moves the bytes that it should."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.nn import Softmax
from siafu.server.edges import ServerEdges
from siafu.server.gathers.on_disk import disk_attention_gather
from siafu.server.gathers.on_disk.disk_attention_gather import DiskAttentionGather
from siafu.server.gathers.registry import local_gather
from siafu.server.memory.disk_share import SLOTS, DiskCut, DiskShare, equal_ranges
from siafu.tables import ScratchDirectory
from siafu.tables.partition_reader import plan_reads
from tests.server.phases import partition_of, run_phase, some_graph

WIDTH = 36


class GathersAgain(DiskAttentionGather):
    """As tensor phases use it: what gradients are made of is gathered just before."""

    draw: tuple[float, int] = (0.0, 0)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        dropout, seed = self.draw
        self.forward(first, last, dropout=dropout, seed=seed)
        super().send_back(first, last, gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gather,dtype",
    [
        (Softmax(heads=3), torch.float32),
        (Softmax(heads=1, self_loops=False), torch.float64),
        (Softmax(heads=2, precision="bf16", slope=0.1), torch.float32),
    ],
    ids=str,
)
@settings(max_examples=6)
@given(
    groups=st.integers(1, 5),
    partitions=st.integers(1, 6),
    count=st.integers(1, 4),
    parts=st.integers(1, 4),
    some=st.booleans(),
    dropout=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 2**32),
)
def test_every_bit_is_that_of_a_gather_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    gather: Softmax,
    dtype: torch.dtype,
    groups: int,
    partitions: int,
    count: int,
    parts: int,
    some: bool,
    dropout: float,
    seed: int,
) -> None:
    graph = some_graph(symmetric=seed % 2 == 0)
    generator = torch.Generator().manual_seed(seed)
    x, gradient = torch.randn(2, graph.num_vertices, WIDTH, generator=generator, dtype=dtype)
    logits = 3 * torch.randn(2, graph.num_vertices, gather.heads, generator=generator, dtype=dtype)
    needed = np.random.default_rng(seed).random(graph.num_vertices) < 0.5 if some else None
    share = DiskShare(DiskCut(tmp_path_factory.mktemp("scratch"), groups, partitions))

    def on_disk(server: ServerEdges) -> DiskAttentionGather:
        found = GathersAgain(gather, server, WIDTH, dtype, share, needed=needed)
        found.draw = dropout, seed
        return found

    found, expected = (
        run_phase(
            graph,
            partition_of(graph, parts),
            make,
            [x, *logits],
            gradient,
            count=count,
            dropout=dropout,
            seed=seed,
        )
        for make in (on_disk, lambda server: local_gather(gather, server, WIDTH, dtype, needed=needed))
    )
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    assert torch.equal(found.out[rows], expected.out[rows])
    for of_sent, of_expected in zip(found.sent, expected.sent, strict=True):
        assert torch.equal(of_sent, of_expected)


@pytest.mark.parametrize("groups,partitions", [(1, 1), (2, 4), (5, 3)])
def test_a_gather_moves_the_bytes_of_the_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int, partitions: int
) -> None:
    monkeypatch.setattr(disk_attention_gather, "_ROWS_AT_ONCE", 64)
    graph, heads, width = some_graph(vertices=1000, edges=4000), 2, 32
    scratch = ScratchDirectory(tmp_path)
    share = DiskShare(DiskCut(tmp_path, groups, partitions), scratch)
    x, logits = torch.randn(graph.num_vertices, width), torch.randn(graph.num_vertices, heads)

    def make(server: ServerEdges) -> DiskAttentionGather:
        return GathersAgain(Softmax(heads=heads), server, width, torch.float32, share)

    run_phase(graph, partition_of(graph, 1), make, [x, logits, logits], x, count=3)
    row_bytes, page, rows = 128, 4096, graph.num_vertices

    def pages(first: int, last: int) -> int:
        return -(-last * row_bytes // page) - first * row_bytes // page

    parts, own = equal_ranges(rows, partitions), equal_ranges(rows, groups)
    once = sum(pages(*parts[read.partition]) for read in plan_reads([*range(len(parts))] * len(own), SLOTS))
    loops = sum(pages(low, min(low + 64, last)) for first, last in own for low in range(first, last, 64))
    whole = sum(pages(*group) for group in own)  # the rows that gradients are gathered for
    table = -(-rows * row_bytes // page)
    # Forth, again before gradients are sent, and back; each with the loops of its own rows.
    assert scratch.traffic.bytes_read == (3 * (once + loops) + whole) * page
    assert scratch.traffic.bytes_written == 2 * table * page

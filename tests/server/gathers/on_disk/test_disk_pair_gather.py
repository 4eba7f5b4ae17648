"""Softmaxes of pairs whose rows are on disk are those of rows in memory, bit for bit, and move the bytes that they should."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu import Graph
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.server.edges import ServerEdges
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.gathers.on_disk import collected_sources
from siafu.server.gathers.on_disk.disk_pair_gather import DiskPairGather
from siafu.server.gathers.registry import local_gather
from siafu.server.memory.disk_share import DiskCut, DiskShare
from siafu.tables import ScratchDirectory
from tests.server.phases import partition_of, run_phase, some_graph

WIDTH = 36
FEATURES = 3

Local = TypeVar("Local", bound=LocalGather)


class GathersAgain(DiskPairGather):
    """As tensor phases use it: what gradients are made of is gathered just before."""

    draw: tuple[float, int, dict[str, torch.Tensor]] = (0.0, 0, {})

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        dropout, seed, weights = self.draw
        self.forward(first, last, dropout=dropout, seed=seed, weights=weights)
        super().send_back(first, last, gradient)


def named(local: Local, weights: dict[str, torch.Tensor]) -> Local:
    """As a model's step names its parameters."""
    local.weight_names = local.learnt = tuple(weights)
    return local


def with_features(graph: Graph) -> Graph:
    features = np.random.default_rng(2).standard_normal((graph.num_edges, FEATURES), np.float32)
    return replace(graph, edge_attr=features)


def weights_of(gather: PairSoftmax, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    found = {"att": torch.randn(WIDTH, dtype=dtype)} if gather.form == "additive" else {}
    return found | ({"mix": torch.randn(WIDTH, FEATURES, dtype=dtype)} if gather.features else {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "gather,dtype",
    [
        (PairSoftmax("fp32", "additive", heads=3, features=FEATURES), torch.float32),
        (PairSoftmax("bf16", "additive", heads=1, self_loops=False), torch.float32),
        (PairSoftmax("fp32", "product", heads=2, self_loops=False, features=FEATURES), torch.float64),
        (PairSoftmax("bf16", "product", heads=2), torch.float32),
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
    gather: PairSoftmax,
    dtype: torch.dtype,
    groups: int,
    partitions: int,
    count: int,
    parts: int,
    some: bool,
    dropout: float,
    seed: int,
) -> None:
    graph = with_features(some_graph(symmetric=seed % 2 == 0, edges=150))
    torch.manual_seed(seed % 1000)
    *sent, gradient = torch.randn(gather.rows_sent + 1, graph.num_vertices, WIDTH, dtype=dtype)
    if gather.sends_loops:
        sent.append(torch.randn(graph.num_vertices, FEATURES, dtype=dtype))
    weights = weights_of(gather, dtype)
    needed = np.random.default_rng(seed).random(graph.num_vertices) < 0.5 if some else None
    share = DiskShare(DiskCut(tmp_path_factory.mktemp("scratch"), groups, partitions))

    def on_disk(server: ServerEdges) -> DiskPairGather:
        found = named(GathersAgain(gather, server, WIDTH, dtype, share, needed=needed), weights)
        found.draw = dropout, seed, weights
        return found

    def in_memory(server: ServerEdges) -> LocalGather:
        return named(local_gather(gather, server, WIDTH, dtype, needed=needed), weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collected_sources, "OWN_ROWS", 7)
        patch.setattr(collected_sources, "collected_bytes", lambda *_: 0)  # groups, however small the graph
        found, expected = (
            run_phase(
                graph,
                partition_of(graph, parts),
                make,
                sent,
                gradient,
                count=count,
                dropout=dropout,
                seed=seed,
                weights=weights,
            )
            for make in (on_disk, in_memory)
        )
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    assert torch.equal(found.out[rows], expected.out[rows])
    assert expected.sent[0].abs().max() > 0
    for of_sent, of_expected in zip(found.sent, expected.sent, strict=True):
        assert torch.equal(of_sent, of_expected)
    for name, of_weights in expected.weights.items():
        assert of_weights.abs().max() > 0
        assert torch.equal(found.weights[name], of_weights)


@pytest.mark.parametrize("groups,partitions,whole", [(1, 1, True), (2, 4, False), (5, 3, False)])
def test_a_gather_moves_the_bytes_of_the_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int, partitions: int, whole: bool
) -> None:
    monkeypatch.setattr(collected_sources, "OWN_ROWS", 64)
    if not whole:
        monkeypatch.setattr(collected_sources, "collected_bytes", lambda *_: 0)
    graph, width = some_graph(vertices=1000, edges=4000), 32
    scratch = ScratchDirectory(tmp_path)
    share = DiskShare(DiskCut(tmp_path, groups, partitions), scratch)
    x = torch.randn(graph.num_vertices, width)
    weights = {"att": torch.randn(width)}
    made: list[DiskPairGather] = []

    def make(server: ServerEdges) -> DiskPairGather:
        gather = PairSoftmax("fp32", "additive", heads=2)
        made.append(named(GathersAgain(gather, server, width, torch.float32, share), weights))
        made[0].draw = 0.0, 0, weights
        return made[0]

    run_phase(graph, partition_of(graph, 1), make, [x, x], x, count=1, weights=weights)
    row_bytes, page, rows = 128, 4096, graph.num_vertices

    def pages(first: int, last: int) -> int:
        return -(-last * row_bytes // page) - first * row_bytes // page

    def collected(edges: np.ndarray, ends: np.ndarray) -> int:
        """A group reads every partition that has its rows or one that its edges lead to."""
        found = 0
        for first, last in made[0]._forth.groups:
            read = {*range(first, last), *ends[(edges >= first) & (edges < last)].tolist()}
            parts = [(0, rows)] if whole else made[0]._forth.partitions
            found += sum(pages(low, high) for low, high in parts if any(low <= each < high for each in read))
        return found

    into = np.repeat(np.arange(rows), np.diff(graph.indptr))
    forth, back = collected(into, graph.indices), collected(graph.indices, into)
    own = sum(
        pages(low, min(low + 64, last))
        for first, last in made[0]._forth.groups
        for low in range(first, last, 64)
    )
    # Keys forth, again before gradients are sent, and on the way back, where rows and gradients are collected, too. Beside
    # them own rows: the targets' three times, keys and gradients once.
    assert scratch.traffic.bytes_read == (3 * forth + 2 * back + 5 * own) * page
    assert scratch.traffic.bytes_written == 3 * pages(0, rows) * page

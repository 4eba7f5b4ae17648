"""Sums with hubs on servers: one result in memory and on disk, in blocks, in any intervals, and begun early."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from siafu.kernels import hub_rows, hubs
from siafu.kernels.advice.advisor import ONE_WALK, Advisor, WalkShape
from siafu.kernels.advice.findings import Findings
from siafu.kernels.advice.timed_choice import TimedChoice
from siafu.nn import GcnSum, Sum
from siafu.server import LocalGather, ServerEdges, edges
from siafu.server.gathers.on_disk.disk_sum_gather import DiskSumGather
from siafu.server.gathers.registry import local_gather
from siafu.server.memory.disk_share import DiskCut, DiskShare
from tests.server.phases import Ran, partition_of, run_phase, some_graph

WIDTH = 20


@pytest.fixture(autouse=True)
def _small_hubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hubs, "HUB_EDGES", 8)
    monkeypatch.setattr(hubs, "GROUP_EDGES", 3)
    monkeypatch.setattr(hubs, "SHARED_EDGES", 16)
    yield


class BegunSum(LocalGather):
    """A gather whose every range is begun with some of the sources."""

    def __init__(self, local: LocalGather) -> None:
        self._local = local

    def __getattr__(self, name: str) -> object:
        return getattr(self._local, name)

    needed, forward_exchange, backward_exchange = (
        property(lambda self, name=name: getattr(self._local, name))
        for name in ("needed", "forward_exchange", "backward_exchange")
    )

    def send(self, *given: object) -> None:
        self._local.send(*given)  # type: ignore[arg-type]

    def send_back(self, *given: object) -> None:
        self._local.send_back(*given)  # type: ignore[arg-type]

    def forward(self, first: int, last: int, **how: object) -> torch.Tensor:
        assert self._local.early_forward is not None
        for until in (7, 8, 25):
            self._local.early_forward.add(first, last, until)
        return self._local.forward(first, last)

    def backward(self, first: int, last: int, **how: object) -> object:  # type: ignore[override]
        assert self._local.early_backward is not None
        self._local.early_backward.add(first, last, 13)
        return self._local.backward(first, last)


def in_far_blocks(
    make: Callable[[ServerEdges], LocalGather], size: int
) -> Callable[[ServerEdges], LocalGather]:
    """A gather that is walked in blocks of so many sources, as for the cache that cores share."""

    class Told(Advisor):
        def walking(self, shape: WalkShape) -> TimedChoice:
            return TimedChoice((ONE_WALK, size), known=size)

    def made(server: ServerEdges) -> LocalGather:
        server.advisor = Told(Findings())
        return make(server)

    return made


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("share", [None, 0.5, 0.97])
@pytest.mark.parametrize("gather", [Sum(), GcnSum(), Sum(weighted=True, precision="bf16")], ids=str)
@pytest.mark.slow
def test_every_way_to_sum_a_hub_has_the_same_bits(
    gather: Sum, share: float | None, servers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = some_graph(weighted=gather.weighted, edges=500)
    assert len(hub_rows(graph.indptr)) > 5 and len(hub_rows(graph.out_edges.indptr)) > 5
    draw = np.random.default_rng(3)
    needed = None if share is None else draw.random(graph.num_vertices) < share
    x, gradient = torch.from_numpy(draw.standard_normal((2, graph.num_vertices, WIDTH), np.float32))

    def ran(make: Callable[[ServerEdges], LocalGather], count: int) -> Ran:
        return run_phase(graph, partition_of(graph, servers), make, [x], gradient, count=count)

    def plain(server: ServerEdges) -> LocalGather:
        return local_gather(gather, server, WIDTH, needed=needed)

    def on_disk(server: ServerEdges) -> LocalGather:
        cut = DiskShare(DiskCut(tmp_path, 3, 4))
        return DiskSumGather(gather, server, WIDTH, torch.float32, cut, needed=needed)

    expected = ran(plain, 1)
    others = [ran(plain, 4), ran(lambda server: BegunSum(plain(server)), 3)]
    others += [ran(in_far_blocks(plain, size), 3) for size in (8, 16)]
    if servers == 1:
        others.append(ran(on_disk, 2))
    monkeypatch.setattr(edges, "block_size", lambda *given, **named: 16)
    others.append(ran(plain, 3))
    rows = slice(None) if needed is None else torch.from_numpy(needed)
    for other in others:
        assert torch.equal(other.out[rows], expected.out[rows])
        assert torch.equal(other.sent[0], expected.sent[0])

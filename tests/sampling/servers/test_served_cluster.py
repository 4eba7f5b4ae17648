"""Mini-batches on servers that talk over sockets: the bits of one process, and its bytes, also when servers are killed."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput, SiafuError
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.report.progress import Progress
from siafu.sampling.sampled_plan import SampledPlan
from siafu.sampling.sampler import Sampler
from siafu.sampling.servers.moved import structure_bytes
from siafu.sampling.servers.sample_station import SampleStation
from siafu.sampling.servers.sent_share import ShareReader, sent_arrays
from siafu.sampling.servers.shares import share_of
from siafu.server.plan import ServerPlan
from tests.cluster.thread_crew import ThreadCrew, ThreadServer
from tests.sessions import same_weights, timeless
from tests.toys import toy_graph

SAMPLED = {"mode": "sampled", "fanout": "3,2", "batch": 16, "servers": 3, "partition": "hash", "epochs": 3}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    toy_graph().save(tmp_path / "toy.store")
    return siafu.load(str(tmp_path / "toy.store"))


@pytest.fixture
def on_threads(monkeypatch: pytest.MonkeyPatch) -> list[ThreadCrew]:
    """Crews whose servers are threads, where Ray's would be made; `before` of the next may be set."""
    made: list[ThreadCrew] = []

    def crew(address: str, plan: ServerPlan, model: Any, partition: Partition, memory: str | None) -> Any:
        def station(address: Any, life: int, machine: str) -> SampleStation:
            own = copy.deepcopy(model)  # a model that another thread runs cannot be run
            whole = ServerPlan.of(plan.graph, own, plan.options, Partition.whole(plan.graph.num_vertices))
            return SampleStation(
                address, life, machine, SampledPlan(whole, own, partition.parts), partition, 2, memory
            )

        made.append(ThreadCrew(station, before=on_threads_before[0], apart=True))
        return made[-1]

    on_threads_before[0] = lambda server: None
    monkeypatch.setattr("siafu.sampling.servers.ray_sample_crew.RaySampleCrew", crew)
    return made


on_threads_before: list[Callable[[ThreadServer], None]] = [lambda server: None]


def _model(graph: Graph, kind: type = siafu.nn.GraphSAGE) -> Any:
    torch.manual_seed(0)
    return kind(graph.num_features, 8, 2, graph.num_classes, dropout=0.5)


@pytest.mark.parametrize("kind", [siafu.nn.GraphSAGE, siafu.nn.GAT])
def test_a_cluster_has_the_bits_and_the_bytes_of_one_process(
    graph: Graph, on_threads: list[ThreadCrew], kind: type
) -> None:
    here, away = _model(graph, kind), _model(graph, kind)
    options = {**SAMPLED, "clip": 0.5, "staleness": 1}
    one = siafu.train(graph, here, **options)
    found = siafu.train(graph, away, cluster="auto", **options)
    assert len(on_threads) == 1 and len(on_threads[0].servers) == 3
    assert timeless(found.history) == timeless(one.history)
    assert same_weights(here, away)
    counted = ("structure", "features", "products", "weights")
    for name in (
        "bytes_scattered",
        "sampled_vertices",
        "sampled_edges",
        *(f"bytes_of_{each}" for each in counted),
    ):
        assert found.counters[name] == one.counters[name], name
    assert found.counters["bytes_of_features"] > 0
    assert "servers_lost" not in found.counters


def test_a_share_that_was_sent_is_the_share_and_has_the_bytes_that_are_counted() -> None:
    graph = toy_graph()
    for leaves in (False, True):
        sample = Sampler(graph, [3, 2], 0, leaves=leaves).sample(np.arange(7, 31))
        share = share_of(sample, slice(5, 20)).sample
        for places in (False, True):
            arrays = sent_arrays(share, places=places)
            assert sum(each.nbytes for each in arrays.values()) == structure_bytes(share, places=places)
            reader = ShareReader(graph.num_vertices, graph.indices.dtype, leaves=leaves)
            received = reader.read(arrays, share.sizes)
            found = received.sample
            assert found.sizes == share.sizes and np.array_equal(found.vertices, share.vertices)
            for mine, theirs in ((found.edges, share.edges), (found.drawn, share.drawn)):
                if theirs is None or mine is None:
                    assert mine is theirs
                    continue
                assert np.array_equal(mine.indptr, theirs.indptr)
                assert np.array_equal(mine.indices, theirs.indices)
                assert not places or np.array_equal(mine.weights, theirs.weights)
            if leaves:
                assert np.array_equal(received.reads[received.rows], share.drawn.indices)  # type: ignore[union-attr]
            assert len(np.unique(received.reads)) == len(received.reads)


def _dies_at(method: str, calls: int) -> Callable[[ThreadServer], None]:
    """Server 1, in its first life, as it does something for the so many-th time."""

    def before(server: ThreadServer) -> None:
        if (server.address.index, server.life) != (1, 1):
            return
        does, seen = getattr(server.station, method), [0]

        def dying(*arguments: Any) -> Any:
            seen[0] += 1
            if seen[0] == calls:
                server.kill()
            return does(*arguments)

        setattr(server.station, method, dying)

    return before


class _Told(Progress):
    def __init__(self) -> None:
        self.lost: list[str] = []

    def rewound(self, epochs: int, lost: str) -> None:
        self.lost.append(lost)


@pytest.mark.parametrize(("method", "calls"), [("_draw", 2), ("_serve", 3), ("_compute", 5)])
def test_a_killed_server_is_replaced_and_no_bit_differs(
    graph: Graph, on_threads: list[ThreadCrew], method: str, calls: int
) -> None:
    here, away, told = _model(graph), _model(graph), _Told()
    one = siafu.train(graph, here, **SAMPLED)
    on_threads_before[0] = _dies_at(method, calls)
    found = siafu.train(graph, away, cluster="auto", progress=told, **SAMPLED)
    assert timeless(found.history) == timeless(one.history) and same_weights(here, away)
    assert found.counters["servers_lost"] == 1 and found.counters["epochs_lost"] == 0
    assert found.counters["bytes_scattered"] == one.counters["bytes_scattered"]
    assert found.counters["gradients_applied"] == one.counters["gradients_applied"]
    assert len(told.lost) == 1 and told.lost[0].startswith(
        "graph server 1 was lost (it was killed) and replaced in"
    )
    assert told.lost[0].endswith("; no epoch is lost")


@pytest.mark.slow
def test_a_server_that_is_lost_again_and_again_ends_the_run_and_it_goes_on_later(
    graph: Graph, on_threads: list[ThreadCrew], tmp_path: Path
) -> None:
    out, epochs = tmp_path / "run", [0]

    def dies_from_epoch_two(server: ThreadServer) -> None:
        does = server.station._compute

        def dying(share: Any, weights: Any) -> None:
            epochs[0] = max(epochs[0], share.drawn.batch.epoch)
            if server.address.index == 1 and epochs[0] >= 1:
                server.kill()
            does(share, weights)

        server.station._compute = dying

    on_threads_before[0] = dies_from_epoch_two
    away = _model(graph)
    with pytest.raises(SiafuError, match=r"server 1 was lost 5 times in a row.*go on with --resume"):
        siafu.train(graph, away, cluster="auto", out=out, checkpoint_every=0, **SAMPLED)
    on_threads_before[0] = lambda server: None
    away, here = _model(graph), _model(graph)
    found = siafu.train(graph, away, cluster="auto", out=out, resume=True, **SAMPLED)
    one = siafu.train(graph, here, **SAMPLED)
    assert timeless(found.history) == timeless(one.history) and same_weights(here, away)
    assert "started, life 1" in (out / "logs" / "graph-1.log").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"layout": "columns"},
            "layout is columns, and on a cluster servers of mode sampled have features by vertices",
        ),
        ({"servers": 1}, "mode sampled shares every batch among servers, and servers is 1"),
        ({"redundancy": 1}, "redundancy is 1, and servers of mode sampled have no warm copies"),
        ({"memory": "200MB"}, "memory is 200MB"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused_in_one_line(
    graph: Graph, on_threads: list[ThreadCrew], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        siafu.train(graph, _model(graph), cluster="auto", **{**SAMPLED, **options})

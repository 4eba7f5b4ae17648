"""Orders of batches whose features come through a buffer: the same results as with features at hand, and bytes counted by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.sampling.batch_loader import BatchLoader
from siafu.sampling.disk.feature_order import FeatureOrder
from siafu.sampling.disk.order_choice import groups_for
from siafu.sampling.sampler import Sampler
from tests.sessions import StopAt, same_weights, stopped, timeless
from tests.toys import toy_graph

SAMPLED = {"mode": "sampled", "fanout": "3,2", "batch": 16}


def _model(graph: Graph, kind: type = siafu.nn.GraphSAGE) -> Any:
    torch.manual_seed(0)
    return kind(graph.num_features, 8, 2, graph.num_classes, dropout=0.5)


def test_an_epoch_has_every_vertex_once_and_a_batch_is_of_the_groups_in_memory() -> None:
    order, vertices = FeatureOrder(1000, 6), np.arange(0, 1000, 2)
    seen = []
    for epoch in range(2):
        found = order.epoch(vertices, 32, 7, epoch)
        assert np.array_equal(np.sort(np.concatenate(found.batches)), vertices)
        assert [len(each) for each in found.batches] == [32] * 15 + [20]
        assert sorted(np.concatenate(found.groups)) == list(range(order.partitions))
        assert (np.diff(found.states) >= 0).all()
        outside = 0
        for number, batch in enumerate(found.batches):
            state = found.states[number]
            held = np.concatenate(found.groups[state : state + 2])
            outside += np.count_nonzero(~np.isin(batch // order.partition_rows, held))
            assert np.isin(batch[0] // order.partition_rows, held)
        assert outside < 32 * 5  # only batches that are of two states have any
        seen.append(found)
    again = order.epoch(vertices, 32, 7, 0)
    assert all(map(np.array_equal, again.batches, seen[0].batches))
    assert not all(map(np.array_equal, seen[1].batches, seen[0].batches))


def test_vertices_are_trained_with_either_neighbour_of_their_group() -> None:
    """A group's vertices are in both of its states, about half in each."""
    order, vertices = FeatureOrder(4000, 5), np.arange(4000)
    found = order.epoch(vertices, 1, 0, 0)
    for number in (1, 2, 3):
        inside = np.isin(np.concatenate(found.batches) // order.partition_rows, found.groups[number])
        states = found.states[inside]
        assert set(states.tolist()) == {number - 1, number}
        assert 0.4 < np.mean(states == number) < 0.6


@pytest.mark.parametrize("kind", [siafu.nn.GraphSAGE, siafu.nn.GAT])
def test_features_from_a_buffer_are_the_features(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_graph().save(tmp_path / "store")
    graph, runs = siafu.load(str(tmp_path / "store")), []
    given = {**SAMPLED, "epochs": 3, "batch_order": "buffer:5"}
    for threads in (1, 4):
        for place in ("training.sampled", "sampling.batch_memory"):
            monkeypatch.setattr(f"siafu.{place}.thread_count", lambda threads=threads: threads)
        model = _model(graph, kind)
        runs.append((siafu.train(graph, model, **given), model))

    def at_hand(parts: Any, activity: Any, epochs: range, **more: int) -> Any:
        return BatchLoader(parts.sampler(), parts.one_server(), activity, **more)

    monkeypatch.setattr("siafu.training.sampled.BufferedLoader", at_hand)
    model = _model(graph, kind)
    plain = siafu.train(graph, model, **given)
    for run, own in runs:
        assert timeless(run.history) == timeless(plain.history) and same_weights(own, model)
        assert run.counters["feature_bytes_read"] == runs[0][0].counters["feature_bytes_read"] > 0
    assert plain.counters["feature_bytes_read"] == 0


def test_bytes_are_those_counted_by_hand() -> None:
    graph = toy_graph()
    run = siafu.train(graph, _model(graph), epochs=2, batch_order="buffer:5", **SAMPLED)
    order, sampler = FeatureOrder(graph.num_vertices, 5), Sampler(graph, [3, 2], 0)
    rows = 0
    for epoch in range(2):
        found, read = order.epoch(np.asarray(graph.train), 16, 0, epoch), set()
        for number, batch in enumerate(found.batches):
            state, held = found.states[number], set()
            for group in (state, state + 1):
                partitions = {*found.groups[group].tolist()}
                held |= partitions
                if group not in read:
                    read.add(group)
                    every = np.arange(graph.num_vertices) // order.partition_rows
                    rows += sum(each in partitions for each in every.tolist())
            vertices = sampler.sample(batch, epoch, number).vertices.tolist()
            rows += sum(each // order.partition_rows not in held for each in vertices)
    assert run.counters["feature_bytes_read"] == rows * graph.num_features * 4
    assert run.counters["feature_bytes_random_order"] > 0
    assert run.config["training"]["batch_order"] == "buffer:5"


def _villages(count: int = 60, size: int = 40, features: int = 64) -> Graph:
    """Vertices whose neighbours have ids near theirs."""
    random = np.random.default_rng(0)
    home = np.repeat(np.arange(count * size) // size * size, 6)
    src = home + random.integers(0, size, len(home))
    dst = np.repeat(np.arange(count * size), 6)
    x = random.standard_normal((count * size, features)).astype(np.float32)
    return Graph.from_edges(
        src, dst, num_vertices=count * size, x=x, y=random.integers(0, 2, count * size),
        train=np.arange(0, count * size, 2), val=np.arange(1, count * size, 8),
    )  # fmt: skip


@pytest.mark.slow
def test_auto_takes_a_buffer_where_features_do_not_fit_and_it_reads_less_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _villages().save(tmp_path / "store")
    graph, out = siafu.load(str(tmp_path / "store")), tmp_path / "run"
    auto = {**SAMPLED, "batch_order": "auto"}
    run = siafu.train(graph, _model(graph), epochs=1, **auto)
    assert run.config["training"]["batch_order"] == "random"
    # As if other arrays left so much.
    monkeypatch.setattr("siafu.training.sampled.SampledTraining._spared", lambda self, memory: 300_000)
    options = {**auto, "batch": 64}
    stopped(graph, _model(graph), out, StopAt(2), **options)
    monkeypatch.undo()
    model, straight = _model(graph), _model(graph)
    run = siafu.train(graph, model, epochs=3, out=out, resume=True, **options)
    assert run.config["training"]["batch_order"] == "buffer:7"
    siafu.train(graph, straight, epochs=3, **{**options, "batch_order": "buffer:7"})
    assert same_weights(model, straight)
    read, random = (run.summary()[f"feature_bytes_{each}"] for each in ("read", "random_order"))
    assert 0 < read < random
    scattered = siafu.load(str(tmp_path / "store"))
    monkeypatch.setattr("siafu.training.sampled.SampledTraining._spared", lambda self, memory: 20_000)
    run = siafu.train(
        scattered, _model(graph), epochs=1, **options
    )  # a 64th of the features is not in memory
    assert run.config["training"]["batch_order"] == "random" and "feature_bytes_read" not in run.counters


def test_groups_are_as_many_as_fit_three_at_a_time() -> None:
    assert groups_for(1000, 10**6) == 4
    assert groups_for(1000, 300) == 10
    assert groups_for(1000, 10) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_order": "buffer:3"}, "batch_order is 'buffer:3': choose auto, random, buffer, or buffer:N"),
        ({"batch_order": "comet"}, "batch_order is 'comet': choose auto"),
        ({"batch_order": "buffer:8", "servers": 2}, "a buffer of features is for mode sampled on one server"),
        ({"batch_order": "buffer", "mode": "pipe", "fanout": None, "batch": None}, "is for mode sampled"),
    ],
)
def test_orders_that_cannot_be_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=words):
        siafu.train(graph, _model(graph), epochs=1, **{**SAMPLED, **options})

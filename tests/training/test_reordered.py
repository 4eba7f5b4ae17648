"""Training in another order of the vertices: the same losses and predictions, by the user's own numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import siafu
from siafu import Graph
from siafu.base.errors import BadInput
from siafu.graph.partition import make_partition, save_partition
from siafu.graph.reorder import make_order, write_layout
from siafu.graph.stores.fingerprint import fingerprint
from siafu.nn import build
from siafu.objective.vertex_classes import VertexClasses
from siafu.training.placement import choose_partition
from siafu.training.run import Run
from tests.sessions import StopAt, gcn, same_weights, stopped
from tests.toys import toy_graph

_CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def model_of(name: str, graph: Graph) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = {"in_channels": 8, "hidden_channels": 16, "out_channels": 3, "num_layers": 2, "dropout": 0.4}
    return build(name, shape).double()


def close(ours: Run, theirs: Run, graph: Graph) -> None:
    losses = [[epoch.train_loss for epoch in run.history] for run in (ours, theirs)]
    np.testing.assert_allclose(*losses, **_CLOSE)
    np.testing.assert_allclose(
        ours.logits(graph).numpy(), theirs.logits(graph).numpy(), rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gin"])
def test_losses_and_predictions_are_those_of_the_users_order(name: str, servers: int) -> None:
    graph = toy_graph()
    how: dict[str, Any] = {"epochs": 4, "servers": servers, "mode": "sync", "partition": "hash"}
    plain = siafu.train(graph, model_of(name, graph), **how)
    close(siafu.train(graph.reorder("rabbit"), model_of(name, graph), **how), plain, graph)


def test_edges_of_one_direction_with_weights_are_walked_the_same() -> None:
    rng = np.random.default_rng(0)
    toy = toy_graph()
    graph = Graph.from_edges(
        *rng.integers(0, 210, (2, 900)),
        num_vertices=210,
        edge_weight=rng.random(900).astype(np.float32),
        x=toy.x,
        y=toy.y,
        train=toy.train,
        val=toy.val,
        test=toy.test,
    )
    plain = siafu.train(graph, model_of("gcn", graph), epochs=4)
    close(siafu.train(graph.reorder("rcm"), model_of("gcn", graph), epochs=4), plain, graph)


class _OwnLabels(VertexClasses):
    """Labels that only the objective knows, by the user's numbers."""

    name = "own_labels"

    def target(self, graph: Graph) -> torch.Tensor:
        return torch.arange(graph.num_vertices) % 3


def test_an_objective_sees_the_users_numbers() -> None:
    graph = toy_graph()
    plain = siafu.train(graph, model_of("gcn", graph), epochs=3, objective=_OwnLabels())
    close(
        siafu.train(graph.reorder("degree"), model_of("gcn", graph), epochs=3, objective=_OwnLabels()),
        plain,
        graph,
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    toy_graph().save(tmp_path / "toy")
    return tmp_path / "toy"


def _lay_out(store: Path, order: str = "rabbit", **how: Any) -> Graph:
    graph = siafu.load(store).replace(layout=None)
    write_layout(store, graph, make_order(graph, order), order, **how)
    return siafu.load(store)


def test_a_partition_saved_before_keeps_its_servers(store: Path) -> None:
    graph = siafu.load(store)
    saved = make_partition(graph, 3, method="hash", seed=7)
    save_partition(store, saved, fingerprint(graph))
    layout = _lay_out(store).layout
    assert layout is not None and layout.renumbered is not None
    found = choose_partition(layout.replace(source=str(store)), 3, "auto")
    np.testing.assert_array_equal(found.owner, saved.owner[layout.renumbered.order])
    given = choose_partition(layout, 3, saved)
    np.testing.assert_array_equal(given.owner, found.owner)


def test_a_run_in_another_order_goes_on_bit_for_bit(store: Path, tmp_path: Path) -> None:
    graph = _lay_out(store)
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(4))
    resumed = siafu.train(graph, gcn(graph), epochs=20, out=tmp_path / "run", resume=True)
    assert same_weights(resumed.model, siafu.train(graph, gcn(graph), epochs=20).model)
    assert resumed.config["graph"]["order"] == "rabbit"


def test_a_run_that_began_before_there_was_a_layout_goes_on_without_it(store: Path, tmp_path: Path) -> None:
    graph = siafu.load(store)
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(4))
    resumed = siafu.train(_lay_out(store), gcn(graph), epochs=20, out=tmp_path / "run", resume=True)
    assert same_weights(resumed.model, siafu.train(graph, gcn(graph), epochs=20).model)


def test_a_run_of_another_order_is_refused(store: Path, tmp_path: Path) -> None:
    graph = _lay_out(store)
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(4))
    other = _lay_out(store, "rcm", overwrite=True)
    with pytest.raises(BadInput, match=r"cannot resume .* with other settings: graph.order"):
        siafu.train(other, gcn(graph), epochs=20, out=tmp_path / "run", resume=True)

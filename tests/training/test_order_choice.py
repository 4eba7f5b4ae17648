"""Training that chooses the order of its vertices: the choice is kept in the run's config, and repeats to the bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import siafu
from siafu import Graph
from siafu.base.errors import BadInput
from siafu.graph.reorder import advice, locality
from siafu.graph.reorder.layout import held_layout
from siafu.graph.reorder.overlap import overlap
from siafu.report.progress import Progress
from siafu.training import order_choice
from tests.graph.reorder.test_orders import blocks
from tests.sessions import StopAt, gcn, same_weights, stopped
from tests.toys import toy_graph


class Reasons(Progress):
    def __init__(self) -> None:
        self.all: list[str] = []

    def prepared(self, lines: list[str], reasons: list[str]) -> None:
        self.all += reasons


def communities() -> Graph:
    """Communities whose vertices have numbers far apart."""
    plain = blocks(60, 100)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, plain.num_vertices)
    x = rng.standard_normal((plain.num_vertices, 8)).astype(np.float32)
    train = np.flatnonzero(rng.random(len(y)) < 0.5)
    return Graph.from_csr(plain.indptr, plain.indices, x=x, y=y, train=train)


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (advice, locality, order_choice):
        monkeypatch.setattr(module, "cache_bytes", lambda level: {2: 128, 3: 2048}[level] * 64)


def trained(graph: Graph, **how: Any) -> tuple[siafu.Run, list[str]]:
    reasons = Reasons()
    return siafu.train(graph, gcn(graph), progress=reasons, **how), reasons.all


@pytest.mark.usefixtures("small_caches")
def test_auto_takes_an_order_that_pays_and_its_config_repeats_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_choice, "seconds_an_edge", lambda length: 1e-5)
    graph = communities()
    run, reasons = trained(graph, epochs=20, reorder="auto")
    assert run.config["training"]["reorder"] == run.config["graph"]["order"] == "rabbit"
    assert any("CPU seconds less in 20 epochs" in reason for reason in reasons)
    again, _ = trained(graph, epochs=20, reorder=run.config["training"]["reorder"])
    assert same_weights(again.model, run.model)
    plain, _ = trained(graph, epochs=20)
    torch.testing.assert_close(run.logits(graph), plain.logits(graph), rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("small_caches")
def test_auto_does_not_look_for_an_order_that_a_short_run_cannot_pay_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_choice, "seconds_an_edge", lambda length: 1e-9)
    monkeypatch.setattr(order_choice, "try_order", None)
    run, reasons = trained(communities(), epochs=2, reorder="auto")
    assert run.config["training"]["reorder"] == "off" and "order" not in run.config["graph"]
    assert any("to look for one takes" in reason for reason in reasons)


@pytest.mark.usefixtures("small_caches")
def test_auto_tries_nothing_where_nothing_belongs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_choice, "try_order", None)
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(*rng.integers(0, 6000, (2, 48_000)), num_vertices=6000, undirected=True)
    found = order_choice.look_for_order(graph, [64, 64], 20)
    assert found.order is None and "share" in found.reason


def test_overlap_is_the_share_of_common_neighbours_beyond_chance() -> None:
    cliques = np.kron(np.eye(50), np.ones((6, 6))) - np.eye(300)
    graph = Graph.from_edges(*np.nonzero(cliques), num_vertices=300)
    chance = 5 * 5 / graph.num_edges  # four other neighbours, all of them shared
    assert overlap(graph).shared == pytest.approx(1 - chance)


def grid() -> Graph:
    places = np.arange(2500)
    side = 50
    across, down = places[places % side < side - 1], places[places < side * (side - 1)]
    return Graph.from_edges(
        np.concatenate([across, down]),
        np.concatenate([across + 1, down + side]),
        num_vertices=2500,
        undirected=True,
    )


def shuffled(graph: Graph) -> Graph:
    order = np.random.default_rng(0).permutation(graph.num_vertices).astype(np.int32)
    found = held_layout(graph, order, "shuffled")
    return Graph.from_csr(found.indptr, found.indices)


def test_squares_belong_together_as_triangles_do() -> None:
    assert overlap(grid()).shared > 0.1


def test_what_stands_together_is_not_hoped_for() -> None:
    numbered, lost = overlap(grid(), close=50), overlap(shuffled(grid()), close=50)
    assert numbered.apart == numbered.far == 0.0
    assert lost.apart > 0.9 * lost.shared > 0.1


@pytest.mark.usefixtures("small_caches")
def test_a_shuffled_grid_is_ordered_and_one_in_its_order_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_choice, "seconds_an_edge", lambda length: 1e-5)
    assert order_choice.look_for_order(shuffled(grid()), [64] * 4, 100).order == "rabbit"
    monkeypatch.setattr(order_choice, "try_order", None)
    assert order_choice.look_for_order(grid(), [64] * 4, 100).order is None


@pytest.mark.usefixtures("small_caches")
def test_an_order_that_takes_longer_than_it_may_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_choice, "_GIVEN_UP", 0.0)
    found = order_choice.look_for_order(communities(), [64] * 4, 100)
    assert found.order is None and "given up" in found.reason


def test_auto_leaves_a_small_graph_alone_and_compiles_nothing_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_choice, "compile_programs", None)
    graph = toy_graph()
    run, reasons = trained(graph, epochs=3, reorder="auto")
    assert same_weights(run.model, trained(graph, epochs=3)[0].model)
    assert reasons[0].startswith("no other order: all rows of a gather fit")


@pytest.mark.parametrize("asked", ["auto", "off", "rabbit"])
def test_a_run_goes_on_in_the_order_in_which_it_began(asked: str, tmp_path: Path) -> None:
    graph = toy_graph()
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(4), reorder="rabbit")
    resumed = siafu.train(graph, gcn(graph), epochs=20, out=tmp_path / "run", resume=True, reorder=asked)
    assert same_weights(resumed.model, siafu.train(graph.reorder("rabbit"), gcn(graph), epochs=20).model)


def test_machines_of_a_cluster_read_the_order_of_the_store(tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy")
    graph = siafu.load(tmp_path / "toy")
    with pytest.raises(BadInput, match="put a layout into the store with 'siafu reorder'"):
        siafu.train(graph, gcn(graph), epochs=1, cluster="auto", reorder="rabbit")

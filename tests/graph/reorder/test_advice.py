"""Whether another order pays: by the reads that miss a cache."""

import numpy as np
import pytest

from siafu import Graph
from siafu.graph.reorder import advice, advise, locality, recommend
from siafu.graph.reorder.locality import _miss_rate
from tests.graph.reorder.test_orders import blocks
from tests.toys import toy_graph


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 128 and of 512 rows, so that small graphs exceed them."""
    for module in (advice, locality):
        monkeypatch.setattr(module, "cache_bytes", lambda level: {2: 128, 3: 2048}[level] * 512)


def _in_order(graph: Graph) -> Graph:
    """The graph with communities that lie together."""
    found = graph.reorder("rabbit").layout
    assert found is not None
    return Graph.from_csr(found.indptr, found.indices)


@pytest.mark.usefixtures("small_caches")
@pytest.mark.slow
def test_communities_under_shuffled_ids_are_worth_an_order() -> None:
    found = advise(blocks(60, 100))
    assert found.order == "rabbit"
    assert "miss a core's cache" in found.reason


@pytest.mark.usefixtures("small_caches")
def test_a_graph_that_lies_well_is_left_as_it_is() -> None:
    assert advise(_in_order(blocks(60, 100))).order is None


@pytest.mark.usefixtures("small_caches")
def test_a_graph_without_communities_is_left_as_it_is() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(*rng.integers(0, 6000, (2, 48_000)), num_vertices=6000, undirected=True)
    assert advise(graph).order is None
    assert graph.reorder().layout is None


def test_a_graph_whose_rows_fit_the_cache_is_left_as_it_is() -> None:
    assert "fit into a core's cache" in recommend(toy_graph())


@pytest.mark.usefixtures("small_caches")
def test_a_dense_graph_is_left_to_blocks() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(*rng.integers(0, 600, (2, 60_000)), num_vertices=600)
    assert "in blocks" in advise(graph).reason


@pytest.mark.usefixtures("small_caches")
def test_who_explains_names_the_command() -> None:
    graph = blocks(60, 100)
    assert "'siafu reorder'" in recommend(graph)
    assert "walked in rabbit order" in recommend(graph.reorder())


def test_misses_are_those_of_a_cache_with_a_slot_for_each_row() -> None:
    ring = np.arange(10_000)
    near = Graph.from_edges(ring, (ring + 1) % 10_000, num_vertices=10_000)
    far = Graph.from_edges(np.random.default_rng(0).permutation(ring), ring, num_vertices=10_000)
    again = Graph.from_edges(ring // 100, ring, num_vertices=10_000)
    assert _miss_rate(near, 100, None) == _miss_rate(far, 100, None) == 1.0
    assert _miss_rate(again, 100, None) < 0.05

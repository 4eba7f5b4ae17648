"""Orders of vertices: permutations that bring neighbours together, the same on any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import reverse_cuthill_mckee

from siafu import Graph
from siafu.base import threads
from siafu.base.errors import BadInput
from siafu.graph.reorder import ORDERS, make_order, orders
from siafu.graph.reorder.permute import places_of
from siafu.graph.reorder.rcm import rcm_order
from tests.graph.partition.graphs import graphs


def blocks(count: int, size: int, *, seed: int = 0) -> Graph:
    """Communities of `size` vertices under shuffled ids; a tenth of the edges leads outside."""
    rng = np.random.default_rng(seed)
    vertices = count * size
    src = rng.integers(0, vertices, 8 * vertices)
    inside = src // size * size + rng.integers(0, size, len(src))
    dst = np.where(rng.random(len(src)) < 0.9, inside, rng.integers(0, vertices, len(src)))
    ids = rng.permutation(vertices)
    return Graph.from_edges(
        ids[src], ids[dst], num_vertices=vertices, undirected=True, y=np.argsort(ids) // size
    )


def mean_span(graph: Graph, order: np.ndarray) -> float:
    """Mean distance of the places that an edge joins."""
    ends = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    places = places_of(order).astype(np.int64)
    return float(np.abs(places[ends] - places[graph.indices]).mean())


@pytest.mark.parametrize("name", ORDERS)
@given(graph=graphs())
@settings(max_examples=25, deadline=None)
@pytest.mark.slow
def test_an_order_has_every_vertex_once(name: str, graph: Graph) -> None:
    order = make_order(graph, name)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(graph.num_vertices))


@pytest.mark.parametrize("name", ["rabbit", "metis"])
def test_communities_under_shuffled_ids_come_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_PART_BYTES", 50 * orders.ROW_BYTES)
    graph = blocks(40, 50)
    shuffled = np.arange(graph.num_vertices, dtype=np.int32)
    assert mean_span(graph, make_order(graph, name)) < 0.35 * mean_span(graph, shuffled)


def test_rabbit_order_keeps_a_community_in_few_pieces() -> None:
    graph = blocks(40, 50)
    of_order = graph.y[make_order(graph, "rabbit")]
    assert (of_order[1:] != of_order[:-1]).sum() < 4 * 40


def test_rabbit_order_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = blocks(300, 60)
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr("siafu.graph.reorder.rabbit.thread_count", lambda count=count: count)
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        threads._pool.cache_clear()
        found.append(make_order(graph, "rabbit"))
    threads._pool.cache_clear()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@given(seed=st.integers(0, 50))
@settings(max_examples=10, deadline=None)
def test_rcm_has_about_the_bandwidth_that_scipy_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wide = rng.permutation(200)
    src = np.arange(199)
    graph = Graph.from_edges(wide[src], wide[src + 1], num_vertices=200, undirected=True)
    matrix = sp.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr), (200, 200))
    ours, theirs = rcm_order(graph.in_edges), reverse_cuthill_mckee(matrix, symmetric_mode=True)
    assert _bandwidth(graph, ours) == _bandwidth(graph, theirs) == 1


def _bandwidth(graph: Graph, order: np.ndarray) -> int:
    ends = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    places = places_of(order)
    return int(np.abs(places[ends] - places[graph.indices]).max())


def test_degree_order_begins_with_what_most_edges_lead_from() -> None:
    graph = Graph.from_edges([2, 2, 2, 1, 1, 0], [0, 1, 3, 0, 2, 1], num_vertices=4)
    assert make_order(graph, "degree").tolist() == [2, 1, 0, 3]


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(BadInput, match="no order 'rabit': choose one of rabbit"):
        make_order(blocks(2, 4), "rabit")


def test_rabbit_order_beyond_the_memory_is_refused_with_the_size_it_takes() -> None:
    with pytest.raises(BadInput, match=r"rabbit order takes .* give more, or choose --order degree"):
        make_order(blocks(2, 4), "rabbit", memory="1MB")


def test_metis_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "metis_installed", lambda: False)
    with pytest.raises(BadInput, match="METIS is not installed"):
        make_order(blocks(2, 4), "metis")

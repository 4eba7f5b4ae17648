"""What each method promises of its partitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu import Graph
from siafu.base.errors import BadInput
from siafu.graph import csr
from siafu.graph.partition import METHODS, make_partition, measure, metis, stream
from siafu.graph.partition.hashed import hash_owners
from siafu.graph.partition.intervals import vertex_costs
from tests.graph.partition.graphs import communities, graphs, matrix

needs_metis = pytest.mark.skipif(not metis.metis_installed(), reason="pymetis is not installed")
by_every_method = pytest.mark.parametrize(
    "method", ["stream", "contiguous", "hash", pytest.param("metis", marks=needs_metis)]
)


@by_every_method
@settings(deadline=None, max_examples=30)
@given(graph=graphs(), wanted=st.integers(1, 8))
@pytest.mark.slow
def test_every_vertex_has_an_owner_that_exists(method: str, graph: Graph, wanted: int) -> None:
    parts = min(wanted, graph.num_vertices)
    partition = make_partition(graph, parts, method=method)
    assert partition.owner.shape == (graph.num_vertices,)
    assert partition.owner.dtype == np.uint16
    assert partition.owner.max() < parts
    assert (partition.method, partition.parts) == (method, parts)


@by_every_method
def test_the_same_seed_gives_the_same_partition(method: str) -> None:
    graph = communities(seed=3)
    once, again = (make_partition(graph, 4, method=method, seed=5).owner for _ in range(2))
    np.testing.assert_array_equal(once, again)


@pytest.mark.parametrize("method", ["hash", pytest.param("metis", marks=needs_metis)])
def test_another_seed_gives_another_partition(method: str) -> None:
    graph = communities(seed=3, inside=0.5)
    owners = [make_partition(graph, 4, method=method, seed=seed).owner for seed in (0, 1)]
    assert (owners[0] != owners[1]).any()


@by_every_method
def test_one_part_owns_everything(method: str) -> None:
    assert not make_partition(communities(), 1, method=method).owner.any()


@settings(deadline=None)
@given(graphs(), st.integers(1, 8))
def test_contiguous_parts_are_ranges_that_cover_everything(graph: Graph, wanted: int) -> None:
    parts = min(wanted, graph.num_vertices)
    owner = make_partition(graph, parts, method="contiguous").owner.astype(int)
    assert (np.diff(owner) >= 0).all()
    np.testing.assert_array_equal(np.unique(owner), np.arange(parts))


@settings(deadline=None)
@given(graphs(), st.integers(1, 8))
def test_fennel_respects_its_capacity(graph: Graph, wanted: int) -> None:
    parts = min(wanted, graph.num_vertices)
    costs = vertex_costs(graph.indptr)
    load = np.bincount(make_partition(graph, parts, method="stream").owner, costs, minlength=parts)
    bound = max(stream.capacity(costs, parts), costs.sum() / parts + costs.max())
    assert load.max() <= bound + 1e-6


def test_fennel_keeps_to_a_tenth_above_the_mean_where_no_vertex_is_heavy() -> None:
    graph = communities(count=4, size=500)
    assert measure(graph, make_partition(graph, 4, method="stream")).balance <= 1.11


@pytest.mark.parametrize("method", ["stream", pytest.param("metis", marks=needs_metis)])
def test_planted_communities_are_cut_far_less_than_by_hash(method: str) -> None:
    graph = communities(count=4, size=500, inside=0.95)
    found = measure(graph, make_partition(graph, 4, method=method)).cut_share
    assert found < 0.6 * measure(graph, make_partition(graph, 4, method="hash")).cut_share


@needs_metis
def test_metis_finds_planted_communities() -> None:
    graph = communities(count=4, size=250, inside=0.95)
    assert measure(graph, make_partition(graph, 4, method="metis")).cut_share < 0.06


def test_fennel_follows_edges_whose_sources_come_later() -> None:
    """A citation graph in order of time: all in-edges of a vertex come from vertices after it."""
    both_ways = communities(count=4, size=500, inside=0.95)
    src, dst = both_ways.indices, np.repeat(np.arange(2000), np.diff(both_ways.indptr))
    late = src > dst
    graph = Graph.from_edges(src[late], dst[late], num_vertices=2000)
    found = measure(graph, make_partition(graph, 4, method="stream")).cut_share
    assert found < 0.8 * measure(graph, make_partition(graph, 4, method="hash")).cut_share


def test_placing_in_small_steps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, told = communities(), []
    whole = make_partition(graph, 3, method="stream").owner
    monkeypatch.setattr(stream, "_EDGES_AT_ONCE", 1000)
    steps = make_partition(graph, 3, method="stream", progress=lambda *told_of: told.append(told_of)).owner
    np.testing.assert_array_equal(steps, whole)
    assert len(told) > 10
    assert told[-1][1] == told[-1][2] == graph.num_edges


def test_hash_spreads_vertices_evenly_and_looks_at_nothing_else() -> None:
    owner = hash_owners(100_000, 7, seed=1)
    counts = np.bincount(owner, minlength=7)
    assert abs(counts - 100_000 / 7).max() < 5 * np.sqrt(100_000 / 7)
    np.testing.assert_array_equal(hash_owners(500, 7, seed=1), owner[:500])


@settings(deadline=None)
@given(graphs())
def test_metis_gets_each_link_once_both_ways_and_no_loops(graph: Graph) -> None:
    starts, others = metis.undirected(graph)
    links = matrix(graph).toarray() != 0
    expected = links | links.T
    np.fill_diagonal(expected, False)
    found = np.zeros_like(expected)
    found[np.repeat(np.arange(graph.num_vertices), np.diff(starts)), others] = True
    np.testing.assert_array_equal(found, expected)
    assert len(others) == expected.sum()
    assert csr.sorted_rows(csr.Csr(starts, others, None)).indices is others


def test_without_metis_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'siafu\[partition\]', or choose --method stream"):
        make_partition(communities(), 2, method="metis")


def test_auto_streams_without_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis, "find_spec", lambda name: None)
    assert make_partition(communities(), 2).method == "stream"


@needs_metis
def test_a_graph_too_large_for_metis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis, "memory_for_metis", lambda: 1_000_000)
    with pytest.raises(BadInput, match=r"METIS would take about .* GB .*: choose --method stream"):
        make_partition(communities(), 2, method="metis")


@needs_metis
def test_auto_takes_metis_where_it_fits_and_streams_elsewhere() -> None:
    assert make_partition(communities(), 2).method == "metis"
    assert make_partition(communities(), 2, memory=100_000).method == "stream"


def test_an_unknown_method_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(BadInput, match=r"no partition method 'metric': did you mean metis.*auto, metis"):
        make_partition(communities(), 2, method="metric")
    assert METHODS[0] == "auto"


@pytest.mark.parametrize("parts", [0, 1001])
def test_parts_without_vertices_are_refused(parts: int) -> None:
    with pytest.raises(BadInput, match=r"has 1,000 vertices and cannot have .* ask for 1 to 1,000"):
        make_partition(communities(), parts, method="hash")

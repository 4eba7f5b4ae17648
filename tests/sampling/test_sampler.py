"""The sampler against one in plain Python, its laws, and its distribution."""

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.sampling.batches import epoch_batches
from siafu.sampling.picks import ALL
from siafu.sampling.sampler import Sampler
from tests.sampling.naive_sampler import naive_sample


def random_graph(vertices, edges, seed=0):
    random = np.random.default_rng(seed)
    return Graph.from_edges(
        random.integers(0, vertices, edges), random.integers(0, vertices, edges), num_vertices=vertices
    )


def star(degree):
    """Vertex 0 with an in-edge from every other."""
    return Graph.from_edges(np.arange(1, degree + 1), np.zeros(degree, np.int64), num_vertices=degree + 1)


@settings(max_examples=60, deadline=None)
@given(
    vertices=st.integers(1, 40),
    edges=st.integers(0, 300),
    fanouts=st.lists(st.sampled_from([1, 2, 3, 7, 50, ALL]), min_size=1, max_size=3),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 1000),
    number=st.integers(0, 1000),
    data=st.data(),
)
def test_a_sample_is_that_of_plain_python(vertices, edges, fanouts, seed, epoch, number, data):
    graph = random_graph(vertices, edges, seed % 2**32)
    batch = data.draw(st.lists(st.integers(0, vertices - 1), min_size=1, max_size=8, unique=True))
    found = Sampler(graph, fanouts, seed).sample(np.array(batch), epoch, number)
    wanted, sizes, drawn = naive_sample(graph, fanouts, batch, seed, epoch, number)
    assert found.vertices.tolist() == wanted and found.sizes == sizes
    assert found.num_edges == sum(map(len, drawn.values()))
    for row, vertex in enumerate(wanted):
        lo, hi = found.edges.indptr[row], found.edges.indptr[row + 1]
        local = found.edges.indices[lo:hi]
        assert (np.diff(local) >= 0).all(), "sources ascend, as every graph's do"
        both = sorted(zip(found.vertices[local].tolist(), found.places[lo:hi].tolist(), strict=True))
        assert both == drawn.get(vertex, [])


@settings(max_examples=40, deadline=None)
@given(
    vertices=st.integers(1, 40),
    edges=st.integers(0, 300),
    fanouts=st.lists(st.sampled_from([1, 3, 50, ALL]), min_size=1, max_size=3),
    seed=st.integers(0, 2**63 - 1),
    data=st.data(),
)
def test_leaves_without_numbers_change_no_draw(vertices, edges, fanouts, seed, data):
    graph = random_graph(vertices, edges, seed % 2**32)
    batch = np.array(data.draw(st.lists(st.integers(0, vertices - 1), min_size=1, max_size=8, unique=True)))
    whole, found = (Sampler(graph, fanouts, seed, leaves=each).sample(batch, 1, 2) for each in (False, True))
    known = whole.sizes[-2]
    assert found.sizes == whole.sizes[:-1] and found.num_edges == whole.num_edges
    assert np.array_equal(found.vertices, whole.vertices[:known])
    assert np.array_equal(found.drawn.indptr, whole.edges.indptr[: known + 1])
    assert np.array_equal(graph.indices[found.drawn.weights], found.drawn.indices)
    inner = found.edges.indptr[-1]
    assert np.array_equal(found.edges.indices, whole.edges.indices[:inner])
    assert np.array_equal(found.places, whole.places[:inner])
    for row in range(known):
        edges_of = slice(found.drawn.indptr[row], found.drawn.indptr[row + 1])
        assert sorted(found.drawn.weights[edges_of]) == sorted(whole.places[edges_of])


def test_a_vertex_with_few_edges_has_all_of_them_and_others_as_many_as_the_fanout():
    graph = random_graph(300, 3000)
    found = Sampler(graph, [9, 4]).sample(np.arange(20))
    degrees = np.diff(graph.indptr)[found.vertices]
    wanted = np.zeros(len(degrees), int)
    first, second = found.sizes[0], found.sizes[1]
    wanted[:first] = np.minimum(degrees[:first], 9)
    wanted[first:second] = np.minimum(degrees[first:second], 4)
    assert (np.diff(found.edges.indptr) == wanted).all()


@pytest.mark.parametrize(("degree", "fanout"), [(6, 3), (7, 2), (5, 4)])
def test_all_subsets_of_edges_are_equally_likely(degree, fanout):
    graph = star(degree)
    sampler = Sampler(graph, [fanout], seed=5)
    subsets = dict.fromkeys(combinations(range(degree), fanout), 0)
    for number in range(4000):
        subsets[tuple(sorted(sampler.sample(np.array([0]), 0, number).places.tolist()))] += 1
    assert stats.chisquare(list(subsets.values())).pvalue > 1e-3


def test_every_edge_is_drawn_as_often_where_many_are():
    degree, fanout, times = 90, 60, 3000
    sampler, counts = Sampler(star(degree), [fanout], seed=1), np.zeros(degree)
    for number in range(times):
        counts[sampler.sample(np.array([0]), 0, number).places] += 1
    expected = times * fanout / degree
    variance = expected * (1 - fanout / degree)
    # Draws of one sample exclude each other: the sum of squares is a chi-square of degree - 1 after this scaling.
    statistic = ((counts - expected) ** 2).sum() / variance * (degree - 1) / degree
    assert 1e-3 < stats.chi2.cdf(statistic, degree - 1) < 1 - 1e-3


def test_draws_differ_between_vertices_batches_epochs_and_seeds():
    graph = random_graph(50, 4000)
    one = Sampler(graph, [5]).sample(np.arange(10), 0, 0).places
    for other in (
        Sampler(graph, [5]).sample(np.arange(10), 0, 1),
        Sampler(graph, [5]).sample(np.arange(10), 1, 0),
        Sampler(graph, [5], seed=1).sample(np.arange(10), 0, 0),
    ):
        assert not np.array_equal(one, other.places)


def test_samples_are_the_same_on_any_number_of_threads():
    graph = random_graph(2000, 40_000)
    sampler = Sampler(graph, [5, 5], seed=3)
    batches = epoch_batches(np.arange(2000), 64, 3, 0)
    alone = [sampler.sample(each, 0, number) for number, each in enumerate(batches)]
    with ThreadPoolExecutor(4) as pool:
        there = list(pool.map(lambda given: sampler.sample(given[1], 0, given[0]), enumerate(batches)))
    for mine, theirs in zip(alone, there, strict=True):
        assert np.array_equal(mine.vertices, theirs.vertices) and np.array_equal(mine.places, theirs.places)


def test_batches_hold_every_vertex_once_in_another_order_every_epoch():
    vertices = np.arange(100) * 3
    first, second = (epoch_batches(vertices, 32, 7, epoch) for epoch in (0, 1))
    assert [len(each) for each in first] == [32, 32, 32, 4]
    assert sorted(np.concatenate(first)) == sorted(np.concatenate(second)) == vertices.tolist()
    assert not np.array_equal(first[0], second[0])
    assert all(np.array_equal(a, b) for a, b in zip(first, epoch_batches(vertices, 32, 7, 0), strict=True))


def test_bad_fanouts_and_batches_are_refused():
    graph = star(4)
    for bad in ([], [0], [-2, 3]):
        with pytest.raises(BadInput, match="fanout"):
            Sampler(graph, bad)
    sampler = Sampler(graph, [2])
    with pytest.raises(BadInput, match="twice"):
        sampler.sample(np.array([0, 1, 0]))
    assert sampler.sample(np.array([0, 1])).sizes[0] == 2

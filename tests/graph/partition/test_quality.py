"""Quality is counted as a dense matrix would count it."""

import numpy as np
import pytest
from hypothesis import given, settings

from siafu import Graph
from siafu.graph.partition import Partition, measure
from tests.graph.partition.graphs import matrix, partitioned


@settings(deadline=None)
@given(partitioned())
def test_counts_are_those_of_the_adjacency_matrix(case: tuple[Graph, Partition]) -> None:
    graph, partition = case
    owner, parts = partition.owner, partition.parts
    counts = matrix(graph).toarray()  # [destination, source]
    quality = measure(graph, partition)
    assert quality.cut_edges == counts[owner[:, None] != owner[None, :]].sum()
    for server in range(parts):
        mine = owner == server
        assert quality.vertices[server] == mine.sum()
        assert quality.edges[server] == counts[mine].sum()
        assert quality.out_edges[server] == counts[:, mine].sum()
        assert quality.forward_ghosts[server] == counts[mine][:, ~mine].any(axis=0).sum()
        assert quality.backward_ghosts[server] == counts[~mine][:, mine].any(axis=1).sum()


@settings(deadline=None)
@given(partitioned())
def test_a_symmetric_graph_needs_the_same_ghosts_both_ways(case: tuple[Graph, Partition]) -> None:
    graph, partition = case
    quality = measure(graph, partition)
    if graph.is_symmetric:
        np.testing.assert_array_equal(quality.forward_ghosts, quality.backward_ghosts)


def test_balance_is_the_most_over_the_mean() -> None:
    graph = Graph.from_edges([0, 1, 2, 3], [1, 0, 1, 1], num_vertices=4)
    quality = measure(graph, Partition("hash", 2, np.array([0, 0, 0, 1], np.uint16)))
    assert quality.vertex_balance == 1.5
    assert quality.edge_balance == 2.0
    assert quality.balance == 1.75
    assert quality.cut_share == 0.25


def test_a_graph_without_edges_is_in_balance() -> None:
    graph = Graph.from_edges([], [], num_vertices=4)
    quality = measure(graph, Partition("hash", 2, np.array([0, 1, 0, 1], np.uint16)))
    assert (quality.cut_share, quality.edge_balance, quality.balance) == (0.0, 1.0, 1.0)


@pytest.mark.slow
def test_servers_beyond_sixteen_bits_are_told_apart() -> None:
    parts = 1 << 17
    graph = Graph.from_edges([0, 1], [1, 0], num_vertices=2)
    quality = measure(graph, Partition("hash", parts, np.array([1, 1 + (1 << 16)], np.int32)))
    assert quality.cut_edges == 2
    assert quality.forward_ghosts[1 + (1 << 16)] == 1

"""Which intervals an interval reads from, against the adjacency of the whole graph."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu import Graph
from siafu.graph.partition import Partition, interval_reads, intervals, local_graph
from tests.graph.partition.graphs import matrix, partitioned


def reads_by_definition(graph: Graph, interval_of: np.ndarray, count: int) -> np.ndarray:
    found = np.eye(count, dtype=bool)
    dst, src = matrix(graph).nonzero()
    found[interval_of[dst], interval_of[src]] = True
    return found


@settings(deadline=None)
@given(partitioned(), st.lists(st.integers(1, 5), min_size=6, max_size=6))
def test_an_interval_reads_from_where_its_edges_come_and_from_itself(
    case: tuple[Graph, Partition], counts: list[int]
) -> None:
    graph, partition = case
    servers = [local_graph(graph, partition, server) for server in range(partition.parts)]
    bounds = [
        intervals(server.forward.edges.indptr, count) for server, count in zip(servers, counts, strict=False)
    ]
    interval_of, number = np.empty(graph.num_vertices, np.int64), 0
    for server, own in zip(servers, bounds, strict=True):
        for first, last in own:
            interval_of[server.vertices[first:last]] = number
            number += 1
    forward, backward = interval_reads(servers, bounds)
    expected = reads_by_definition(graph, interval_of, number)
    np.testing.assert_array_equal(forward, expected)
    np.testing.assert_array_equal(backward, expected.T)


def test_a_ring_reads_only_from_the_interval_before() -> None:
    """0 → 1 → … → 7 → 0, two vertices an interval."""
    graph = Graph.from_edges(np.arange(8), np.roll(np.arange(8), -1))
    server = local_graph(graph, Partition("contiguous", 1, np.zeros(8, np.uint16)), 0)
    forward, backward = interval_reads([server], [[(0, 2), (2, 4), (4, 6), (6, 8)]])
    np.testing.assert_array_equal(forward, np.eye(4) + np.roll(np.eye(4), 1, axis=0) > 0)
    np.testing.assert_array_equal(backward, forward.T)

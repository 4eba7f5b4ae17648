"""Servers with their ghosts compute what the whole graph does."""

import numpy as np
import pytest
from hypothesis import given, settings

from siafu import Graph
from siafu.graph.csr import Csr
from siafu.graph.partition import GhostTable, LocalGraph, Partition, local_graph
from siafu.kernels import gather_sum, pack
from tests.graph.partition.graphs import matrix, partitioned

WIDTH = 3


def servers(graph: Graph, partition: Partition) -> list[LocalGraph]:
    return [local_graph(graph, partition, server) for server in range(partition.parts)]


def exchanged(locals_: list[LocalGraph], tables: list[GhostTable], rows: np.ndarray) -> list[np.ndarray]:
    """Each server's gathered table: its own rows, and its ghosts' rows as the other servers sent them."""
    own = [rows[local.vertices] for local in locals_]
    gathered = []
    for me, table in enumerate(tables):
        ghosts = np.full((len(table.ghosts), rows.shape[1]), np.nan)
        for other, theirs in enumerate(tables):
            ghosts[table.receive[other]] = own[other][theirs.send[me]]
        gathered.append(np.concatenate([own[me], ghosts]))
    return gathered


def gathered_by_servers(locals_: list[LocalGraph], tables: list[GhostTable], rows: np.ndarray) -> np.ndarray:
    result = np.full_like(rows, np.nan)
    for local, table, received in zip(locals_, tables, exchanged(locals_, tables, rows), strict=True):
        indptr, indices, weights = table.edges
        exact = None if weights is None else weights.astype(np.float64)
        result[local.vertices] = gather_sum(indptr, indices, exact, pack(received, None, np.float64))[
            :, :WIDTH
        ]
    return result


def some_rows(graph: Graph) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((graph.num_vertices, WIDTH))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_forward_gather_over_ghosts_is_the_gather_over_the_graph(weighted: bool) -> None:
    @settings(deadline=None)
    @given(partitioned(weighted=weighted))
    def holds(case: tuple[Graph, Partition]) -> None:
        graph, rows = case[0], some_rows(case[0])
        parts = servers(*case)
        found = gathered_by_servers(parts, [part.forward for part in parts], rows)
        np.testing.assert_allclose(found, matrix(graph) @ rows, rtol=1e-12, atol=1e-12)

    holds()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_backward_gather_over_ghosts_is_its_adjoint(weighted: bool) -> None:
    @settings(deadline=None)
    @given(partitioned(weighted=weighted))
    def holds(case: tuple[Graph, Partition]) -> None:
        graph, rows = case[0], some_rows(case[0])
        parts = servers(*case)
        found = gathered_by_servers(parts, [part.backward for part in parts], rows)
        np.testing.assert_allclose(found, matrix(graph).T @ rows, rtol=1e-12, atol=1e-12)

    holds()


@settings(deadline=None)
@given(partitioned())
def test_what_a_server_sends_is_what_the_other_receives_in_that_order(case: tuple[Graph, Partition]) -> None:
    parts = servers(*case)
    for direction in ("forward", "backward"):
        for one in parts:
            for other in parts:
                sent = one.vertices[getattr(one, direction).send[other.server]]
                table: GhostTable = getattr(other, direction)
                np.testing.assert_array_equal(sent, table.ghosts[table.receive[one.server]])
                assert one is not other or len(sent) == 0


@settings(deadline=None)
@given(partitioned())
def test_every_ghost_is_remote_needed_and_received_once(case: tuple[Graph, Partition]) -> None:
    graph, partition = case
    for part in servers(graph, partition):
        table = part.forward
        assert (np.diff(table.ghosts) > 0).all()
        assert (partition.owner[table.ghosts] != part.server).all()
        np.testing.assert_array_equal(np.sort(table.receive.values), np.arange(len(table.ghosts)))
        used = np.unique(table.edges.indices)
        np.testing.assert_array_equal(
            used[used >= len(part.vertices)], len(part.vertices) + np.arange(len(table.ghosts))
        )


@settings(deadline=None)
@given(partitioned(weighted=True))
def test_local_columns_ascend_within_a_row(case: tuple[Graph, Partition]) -> None:
    for part in servers(*case):
        for edges in (part.forward.edges, part.backward.edges):
            assert_rows_ascend(edges)


def assert_rows_ascend(edges: Csr) -> None:
    assert edges.indices.dtype == np.int32
    for first, last in zip(edges.indptr[:-1], edges.indptr[1:], strict=True):
        assert (np.diff(edges.indices[first:last]) >= 0).all()


def test_a_symmetric_graph_has_one_table_for_both_directions() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], undirected=True)
    part = local_graph(graph, Partition("hash", 2, np.array([0, 1, 0, 1], np.uint16)), 0)
    assert part.backward is part.forward


def test_a_small_graph_has_the_ghosts_one_sees() -> None:
    """0 → 1 → 2 → 3 → 0, where server 0 owns 0 and 2."""
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    part = local_graph(graph, Partition("hash", 2, np.array([0, 1, 0, 1], np.uint16)), 0)
    np.testing.assert_array_equal(part.vertices, [0, 2])
    np.testing.assert_array_equal(part.forward.ghosts, [1, 3])
    np.testing.assert_array_equal(part.forward.edges.indices, [3, 2])  # 0 reads ghost 3, 2 reads ghost 1
    np.testing.assert_array_equal(part.forward.send[1], [0, 1])
    np.testing.assert_array_equal(part.backward.edges.indices, [2, 3])  # 0 leads to 1, 2 leads to 3

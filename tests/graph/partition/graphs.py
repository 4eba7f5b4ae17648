"""Graphs and partitions for tests of partitioning."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from siafu import Graph
from siafu.graph.partition import Partition
from siafu.graph.partition.partition import owner_dtype


@st.composite
def graphs(draw: st.DrawFn, min_vertices: int = 1, weighted: bool = False) -> Graph:
    """Directed or not, with self-loops and parallel edges, and vertices without any."""
    vertices = draw(st.integers(min_vertices, 40))
    edges = draw(st.integers(0, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    data: dict[str, Any] = {"edge_weight": rng.integers(1, 9, edges)} if weighted else {}
    # Squared draws make hubs of the first vertices.
    src, dst = ((rng.random((2, edges)) ** 2) * vertices).astype(np.int64)
    return Graph.from_edges(src, dst, num_vertices=vertices, undirected=draw(st.booleans()), **data)


@st.composite
def partitioned(draw: st.DrawFn, weighted: bool = False) -> tuple[Graph, Partition]:
    """A graph and any partition of it; some servers may own nothing."""
    graph = draw(graphs(weighted=weighted))
    parts = draw(st.integers(1, 6))
    owner = draw(
        st.lists(st.integers(0, parts - 1), min_size=graph.num_vertices, max_size=graph.num_vertices)
    )
    return graph, Partition("hash", parts, np.array(owner, owner_dtype(parts)))


def communities(count: int = 4, size: int = 250, *, inside: float = 0.9, seed: int = 0) -> Graph:
    """Planted communities in shuffled order; a share `inside` of the edges stays within one."""
    rng = np.random.default_rng(seed)
    vertices = count * size
    community = rng.permutation(vertices) % count
    members = [np.flatnonzero(community == c) for c in range(count)]
    src = rng.integers(0, vertices, 10 * vertices)
    near = np.array([rng.choice(members[c]) for c in community[src]])
    dst = np.where(rng.random(len(src)) < inside, near, rng.integers(0, vertices, len(src)))
    return Graph.from_edges(src, dst, num_vertices=vertices, undirected=True, merge_parallel=True)


def matrix(graph: Graph) -> sp.csr_matrix:
    """Rows are destinations, columns sources; parallel edges add up."""
    weights = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    shape = (graph.num_vertices, graph.num_vertices)
    # A copy: summing duplicates up works in place.
    found = sp.csr_matrix((weights.astype(np.float64), graph.indices, graph.indptr), shape=shape, copy=True)
    found.sum_duplicates()
    return found

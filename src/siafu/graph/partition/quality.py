"""PartitionQuality: cut edges, ghosts and balance of a partition."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import IntArray
from siafu.graph.graph import Graph
from siafu.graph.partition.partition import Owners, Partition
from siafu.graph.progress import ProgressCallback, silent

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionQuality:
    """Counts of a partition. An edge belongs to the server of its destination.

    cut_edges:       edges whose ends have different owners
    vertices:        [parts] vertices of each server
    edges:           [parts] in-edges of each server
    out_edges:       [parts] edges that start at each server's vertices
    forward_ghosts:  [parts] remote vertices that the server's in-edges come from: rows it needs to gather
    backward_ghosts: [parts] remote vertices that its out-edges lead to: gradients it needs to gather
    """

    cut_edges: int
    vertices: Counts
    edges: Counts
    out_edges: Counts
    forward_ghosts: Counts
    backward_ghosts: Counts

    @property
    def cut_share(self) -> float:
        """The share of all edges that are cut; 0 without edges."""
        return self.cut_edges / max(1, int(self.edges.sum()))

    @property
    def balance(self) -> float:
        """The heaviest server over the mean, where all vertices weigh as much as all edges: 1 is even."""
        return _max_over_mean(_shares(self.vertices) + _shares(self.edges))

    @property
    def vertex_balance(self) -> float:
        """The most vertices of a server over the mean: 1 is even."""
        return _max_over_mean(self.vertices)

    @property
    def edge_balance(self) -> float:
        """The most in-edges of a server over the mean: 1 is even."""
        return _max_over_mean(self.edges)


def measure(
    graph: Graph, partition: Partition, progress: ProgressCallback = silent, *, needed: Counts | None = None
) -> PartitionQuality:
    """Measure a partition in two passes over the in-edges. Takes two numbers a vertex and a few a server.

    needed: vertices, ascending, that alone count, with the edges that lead to them; None: all
    """
    parts, owner = partition.parts, partition.owner
    rows = np.arange(graph.num_vertices) if needed is None else needed
    vertices = np.bincount(owner[rows], minlength=parts)
    by_server = rows[np.argsort(owner[rows], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(vertices)])
    edges, cut, forward = (np.zeros(parts, np.int64) for _ in range(3))
    needed_by = np.full(graph.num_vertices, -1, np.int32)
    done = 0
    progress("measuring edges", 0, graph.num_edges)
    for server in range(parts):
        mine = by_server[starts[server] : starts[server + 1]]
        edges[server], cut[server], forward[server] = _count_sources(
            graph.indptr, graph.indices, owner, mine, server, needed_by
        )
        done += int(edges[server])
        progress("measuring edges", done, graph.num_edges)
    out_edges, backward = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    _count_destinations(graph.indptr, graph.indices, owner, rows, np.full(parts, -1), out_edges, backward)
    return PartitionQuality(int(cut.sum()), vertices, edges, out_edges, forward, backward)


def _shares(counts: Counts) -> NDArray[np.float64]:
    return np.asarray(counts / max(1, counts.sum()))


def _max_over_mean(counts: NDArray[Any]) -> float:
    return float(counts.max() / counts.mean()) if counts.any() else 1.0


@kernel
def _count_sources(
    indptr: Counts, indices: IntArray, owner: Owners, mine: Counts, server: int, needed_by: NDArray[np.int32]
) -> tuple[int, int, int]:
    """Edges into `mine`, those of them that are cut, and their distinct remote sources.

    needed_by: [V] the last server that was found to need the vertex
    """
    edges, cut, ghosts = 0, 0, 0
    for k in range(len(mine)):
        v = mine[k]
        edges += indptr[v + 1] - indptr[v]
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if owner[u] != server:
                cut += 1
                if needed_by[u] != server:
                    needed_by[u] = server
                    ghosts += 1
    return edges, cut, ghosts


@kernel
def _count_destinations(
    indptr: Counts,
    indices: IntArray,
    owner: Owners,
    rows: Counts,
    reached_from: Counts,
    out_edges: Counts,
    ghosts: Counts,
) -> None:
    """Add up, for each server, the edges to `rows` that start there and the remote vertices that they lead to.

    reached_from: [parts] the last vertex that was found to have a source on the server
    """
    for v in rows:
        home = owner[v]
        for e in range(indptr[v], indptr[v + 1]):
            server = owner[indices[e]]
            out_edges[server] += 1
            if server != home and reached_from[server] != v:
                reached_from[server] = v
                ghosts[server] += 1

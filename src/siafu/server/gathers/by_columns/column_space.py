"""ColumnSpace: one server where gathers are laid out by columns: all edges, and which rows it exchanges with whom."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.graph import Graph
from siafu.graph.csr import Csr
from siafu.graph.partition import ByServer, GhostTable, LocalGraph, Partition, intervals
from siafu.kernels.advice.advisor import Advisor
from siafu.server.edges import Exchange, ServerEdges

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Ranges = Sequence[tuple[int, int]]


def slices_of(columns: int, servers: int) -> tuple[slice, ...]:
    """The columns of each server: as many for all, but for one more of the first ones."""
    least, more = divmod(columns, servers)
    firsts = [least * server + min(server, more) for server in range(servers + 1)]
    return tuple(slice(first, last) for first, last in pairwise(firsts))


class ColumnSlice(NamedTuple):
    """The part of every row that one server gathers.

    columns: of the rows
    heads:   whose softmaxes it makes; none where rows have no heads, or it no column
    """

    columns: slice
    heads: slice = slice(0, 0)

    @property
    def width(self) -> int:
        """How many columns."""
        return int(self.columns.stop - self.columns.start)

    @property
    def head_count(self) -> int:
        """How many heads."""
        return int(self.heads.stop - self.heads.start)


def column_slices(width: int, heads: int, servers: int) -> tuple[ColumnSlice, ...]:
    """Each server's part of rows so wide.

    heads: softmaxes, of equally many columns each; 0: every column is gathered by itself. A server has whole heads, or, where there are
           more servers than heads, columns of one head
    """
    if not heads:
        return tuple(ColumnSlice(cut) for cut in slices_of(width, servers))
    return tuple(_head_slices(width // heads, heads, servers))


def _head_slices(head_width: int, heads: int, servers: int) -> Iterator[ColumnSlice]:
    if heads >= servers:
        for cut in slices_of(heads, servers):
            yield ColumnSlice(slice(cut.start * head_width, cut.stop * head_width), cut)
        return
    for head, sharing in enumerate(slices_of(servers, heads)):
        for cut in slices_of(head_width, sharing.stop - sharing.start):
            first, last = head * head_width + cut.start, head * head_width + cut.stop
            yield ColumnSlice(slice(first, last), slice(head, head + (last > first)))


def widest_slice(width: int, heads: int, servers: int) -> ColumnSlice:
    """The slice of a server that has most columns."""
    return max(column_slices(width, heads, servers), key=lambda each: each.width)


def whole_edges(graph: Graph, advisor: Advisor | None = None) -> ServerEdges:
    """All edges of a graph, as every server walks them; servers of one process share them.

    advisor: chooses how they are walked; None: the rules do
    """
    nobody_else = Partition.whole(graph.num_vertices)
    return ServerEdges.of(graph, nobody_else, 0, advisor=advisor)


class ColumnSpace:
    """What the gathers of one server share that are laid out by columns.

    server:   its number; parts: how many there are
    whole:    all edges of the graph: it gathers its columns along them, in shares of the vertices, one an interval
    owned:    its own vertices, without edges: what they send and get
    vertices: [own] ids of these
    forward, backward: the shares, as ranges of all vertices, of gathers and of their adjoints
    """

    def __init__(self, whole: ServerEdges, partition: Partition, server: int, shares: int) -> None:
        self.whole, self.server, self.parts, self._partition = whole, server, partition.parts, partition
        self.vertices = partition.vertices_of(server)
        self.owned = _without_edges(whole.graph, partition, server, self.vertices)
        self.forward = intervals(whole.local.forward.edges.indptr, shares)
        self.backward = intervals(whole.local.backward.edges.indptr, shares)
        self._known: list[tuple[Mask | None, Exchange]] = []

    def to_slices(self, needed: Mask | None) -> Exchange:
        """Own rows go to every other server, those of others come; needed: [V] which rows travel; None: all."""
        for mask, exchange in self._known:
            if mask is needed:
                return exchange
        found = Exchange(self._own_rows(needed), self._others_rows(needed))
        self._known.append((needed, found))
        return found

    def to_owners(self, needed: Mask | None) -> Exchange:
        """The other way: every server gets its own rows."""
        back = self.to_slices(needed)
        return Exchange(back.receive, back.send)

    def _own_rows(self, needed: Mask | None) -> ByServer:
        rows = np.arange(len(self.vertices)) if needed is None else np.flatnonzero(needed[self.vertices])
        others = np.arange(self.parts) != self.server
        return ByServer(np.concatenate([[0], np.cumsum(others * len(rows))]), np.tile(rows, self.parts - 1))

    def _others_rows(self, needed: Mask | None) -> ByServer:
        found = [self._partition.vertices_of(other) for other in range(self.parts)]
        found[self.server] = np.empty(0, np.int64)
        if needed is not None:
            found = [rows[needed[rows]] for rows in found]
        return ByServer(np.cumsum([0, *map(len, found)]), np.concatenate(found))


def _without_edges(graph: Graph, partition: Partition, server: int, vertices: Ids) -> ServerEdges:
    nobody = ByServer(np.zeros(partition.parts + 1, np.int64), np.empty(0, np.int64))
    weights = None if graph.edge_weight is None else np.empty(0, graph.edge_weight.dtype)
    none = Csr(np.zeros(len(vertices) + 1, np.int64), np.empty(0, np.int32), weights)
    table = GhostTable(none, np.empty(0, np.int64), nobody, nobody)
    return ServerEdges(graph, partition, LocalGraph(server, vertices, table, table))

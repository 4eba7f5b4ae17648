"""Ghost tables: a server's edges, the remote vertices that they need, and which rows servers send each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import Allocate, Csr, EdgeWeights, IntArray, id_dtype
from siafu.graph.graph import Graph
from siafu.graph.partition.partition import Owners, Partition

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ByServer:
    """A list of numbers for each server, end to end.

    starts: [parts + 1]; server s's are values[starts[s]:starts[s + 1]]
    values: ascending within a server
    """

    starts: Ids
    values: Ids

    def __getitem__(self, server: int) -> Ids:
        return self.values[self.starts[server] : self.starts[server + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class GhostTable:
    """One direction of a server's edges: in-edges to gather rows forward, out-edges to gather gradients backward.

    The gathered table has the server's own rows first, in the order of its vertices, then the ghosts' rows.

    edges:   rows are the server's vertices, columns (int32) are rows of the gathered table, ascending within a row
    ghosts:  [G] global ids of the remote vertices that the edges need, ascending
    receive: from each server, which ghosts (0 to G - 1) it fills
    send:    to each server, which of this server's rows it needs

    What s sends to t, in s's order, is what t receives from s, in t's order: rows travel without ids.
    """

    edges: Csr
    ghosts: Ids
    receive: ByServer
    send: ByServer


@dataclass(frozen=True, slots=True, eq=False)
class LocalGraph:
    """One server's part of the graph.

    server:   its number
    vertices: global ids of its vertices, ascending; an interval is a range of these
    forward:  its in-edges; remote rows come from the sources
    backward: its out-edges; remote gradients come from the destinations; the very same table if symmetric
    """

    server: int
    vertices: Ids
    forward: GhostTable
    backward: GhostTable


def local_graph(graph: Graph, partition: Partition, server: int, allocate: Allocate = np.empty) -> LocalGraph:
    """The part of `graph` that is `server`'s, with its ghosts. Holds a few numbers a vertex of the whole graph.

    The only server of all has the graph's own arrays. allocate: makes arrays for the edges
    """
    vertices = partition.vertices_of(server)
    if partition.parts == 1:
        whole = _alone(graph.in_edges)
        return LocalGraph(server, vertices, whole, whole if graph.is_symmetric else _alone(graph.out_edges))
    incoming = _rows(graph.in_edges, vertices, allocate)
    outgoing = incoming if graph.is_symmetric else _rows(graph.out_edges, vertices, allocate)
    placed = vertices, partition, server, allocate
    forward = _table(incoming, outgoing, *placed)
    backward = forward if graph.is_symmetric else _table(outgoing, incoming, *placed)
    return LocalGraph(server, vertices, forward, backward)


def edge_numbers(graph: Graph, local: LocalGraph, direction: str) -> IntArray | None:
    """[edges] the place of each of a server's edges among the graph's in-edges, by which features and types go.

    direction: "forward" or "backward", of which of its tables; None: the places are the edges' own
    """
    forward, alone = direction == "forward", len(local.vertices) == graph.num_vertices
    if alone:
        return None if forward else graph.out_numbers
    carried: Any = (
        np.arange(graph.num_edges, dtype=id_dtype(graph.num_edges)) if forward else graph.out_numbers
    )
    whole = graph.in_edges if forward else graph.out_edges
    table = local.forward if forward else local.backward
    rows = _rows(whole._replace(weights=carried), local.vertices)
    own = len(local.vertices)
    column = np.empty(graph.num_vertices, np.int32)
    column[local.vertices] = np.arange(own)
    column[table.ghosts] = np.arange(own, own + len(table.ghosts))
    found: Any = np.empty_like(rows.weights)
    _renumber(*rows, column, own, np.empty(len(rows.indices), np.int32), found)
    return found  # type: ignore[no-any-return]


def _alone(edges: Csr) -> GhostTable:
    none = np.empty(0, np.int64)
    nobody = ByServer(np.zeros(2, np.int64), none)
    return GhostTable(edges, none, nobody, nobody)


def _rows(edges: Csr, vertices: Ids, allocate: Allocate = np.empty) -> Csr:
    """The rows of `vertices`; columns are still global."""
    indptr = np.zeros(len(vertices) + 1, np.int64)
    np.cumsum(edges.indptr[vertices + 1] - edges.indptr[vertices], out=indptr[1:])
    indices = allocate(int(indptr[-1]), edges.indices.dtype)
    weights = None if edges.weights is None else allocate(int(indptr[-1]), edges.weights.dtype)
    _copy_rows(*edges, vertices, indptr, indices, weights)
    return Csr(indptr, indices, weights)


def _table(
    needs: Csr, offers: Csr, vertices: Ids, partition: Partition, server: int, allocate: Allocate
) -> GhostTable:
    """A ghost table. Ghosts are the remote ends of `needs`; the owners of the ends of `offers` need this server's rows."""
    owner = partition.owner
    remote = np.zeros(len(owner), np.bool_)
    remote[needs.indices] = True
    remote[vertices] = False
    ghosts = np.flatnonzero(remote)
    column = np.empty(len(owner), np.int32)
    column[vertices] = np.arange(len(vertices))
    column[ghosts] = np.arange(len(vertices), len(vertices) + len(ghosts))
    indices = allocate(len(needs.indices), np.int32)
    weights = None if needs.weights is None else allocate(len(needs.weights), needs.weights.dtype)
    _renumber(*needs, column, len(vertices), indices, weights)
    senders = owner[ghosts]
    return GhostTable(
        edges=Csr(needs.indptr, indices, weights),
        ghosts=ghosts,
        receive=ByServer(
            _starts(np.bincount(senders, minlength=partition.parts)), np.argsort(senders, kind="stable")
        ),
        send=_readers(offers, owner, server, partition.parts),
    )


def _readers(edges: Csr, owner: Owners, server: int, parts: int) -> ByServer:
    """Rows of `edges`, by every other server that owns a column of theirs."""
    counts = np.zeros(parts, np.int64)
    _visit_readers(edges.indptr, edges.indices, owner, server, np.full(parts, -1), counts, None)
    starts = _starts(counts)
    values = np.empty(starts[-1], np.int64)
    _visit_readers(edges.indptr, edges.indices, owner, server, np.full(parts, -1), starts[:-1].copy(), values)
    return ByServer(starts, values)


def _starts(counts: Ids) -> Ids:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@kernel
def _copy_rows(
    indptr: Ids,
    indices: IntArray,
    weights: EdgeWeights,
    rows: Ids,
    starts: Ids,
    out: IntArray,
    out_weights: Any,
) -> None:
    for k in range(len(rows)):
        lo, hi = indptr[rows[k]], indptr[rows[k] + 1]
        out[starts[k] : starts[k + 1]] = indices[lo:hi]
        if weights is not None:
            out_weights[starts[k] : starts[k + 1]] = weights[lo:hi]


@kernel
def _renumber(
    indptr: Ids,
    indices: IntArray,
    weights: EdgeWeights,
    local: IntArray,
    own: int,
    out: IntArray,
    out_weights: Any,
) -> None:
    """Local columns, a row's own vertices before its ghosts: both ascend as they did, so the row does too."""
    for i in range(len(indptr) - 1):
        at = indptr[i]
        for ghosts in range(2):
            for e in range(indptr[i], indptr[i + 1]):
                j = local[indices[e]]
                if (j >= own) == (ghosts == 1):
                    out[at] = j
                    if weights is not None:
                        out_weights[at] = weights[e]
                    at += 1


@kernel
def _visit_readers(
    indptr: Ids, indices: IntArray, owner: Owners, server: int, last_row: Ids, cursor: Ids, values: Any
) -> None:
    """Move cursor[s] on by one for each row that server s reads; with `values`, write the row there first.

    last_row: [parts] the last row that was found to be read by the server
    """
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            reader = owner[indices[e]]
            if reader != server and last_row[reader] != i:
                last_row[reader] = i
                if values is not None:
                    values[cursor[reader]] = i
                cursor[reader] += 1

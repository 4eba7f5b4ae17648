"""Reads: which intervals the gathers of an interval read rows from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all
from siafu.graph.csr import IntArray
from siafu.graph.partition.ghosts import GhostTable, Ids, LocalGraph

Bounds = Sequence[tuple[int, int]]  # of one server's intervals: ranges of its vertices that follow each other
Mask = NDArray[np.bool_]


class Reads(NamedTuple):
    """Which intervals read whose rows. Intervals are numbered across all servers, in order.

    forward:  [K, K]; forward[i, j]: some vertex of interval i has an in-edge from one of j
    backward: [K, K]; likewise by out-edges; the very same matrix where all servers' edges are symmetric

    Every interval reads itself.
    """

    forward: Mask
    backward: Mask


def interval_reads(servers: Sequence[LocalGraph], bounds: Sequence[Bounds]) -> Reads:
    """Find the reads in one pass over the edges; an interval that reads all others ends its part of the pass."""
    interval_of = intervals_of_vertices([server.vertices for server in servers], bounds)
    found = [server_reads(server, bounds, interval_of) for server in servers]
    forward = np.concatenate([each.forward for each in found])
    if all(each.backward is each.forward for each in found):
        return Reads(forward, forward)
    return Reads(forward, np.concatenate([each.backward for each in found]))


def all_read(own: int, count: int) -> Reads:
    """Rows [own, count] of both matrices where every interval reads all."""
    every = np.ones((own, count), np.bool_)
    return Reads(every, every)


def server_reads(server: LocalGraph, bounds: Sequence[Bounds], interval_of: NDArray[np.int32]) -> Reads:
    """Rows [k, K] of both matrices for the k intervals of one server.

    bounds:      of all servers
    interval_of: as `intervals_of_vertices` gives it
    """
    before = sum(map(len, bounds[: server.server]))
    count = sum(map(len, bounds))
    own = bounds[server.server]

    def matrix(table: GhostTable) -> Mask:
        reads = np.eye(len(own), count, before, dtype=np.bool_)
        columns = _columns(table, server, interval_of)
        reachable = len(np.unique(columns))
        run_all(
            lambda work: _mark_reads(*work),
            [(*table.edges[:2], columns, reachable, reads[k], *span) for k, span in enumerate(own)],
        )
        return reads

    forward = matrix(server.forward)
    return Reads(forward, forward if server.backward is server.forward else matrix(server.backward))


def intervals_of_vertices(vertices: Sequence[Ids], bounds: Sequence[Bounds]) -> NDArray[np.int32]:
    """[V] the interval of each vertex.

    vertices: of each server, ascending
    """
    found = np.empty(sum(map(len, vertices)), np.int32)
    number = 0
    for own, ranges in zip(vertices, bounds, strict=True):
        for begin, end in ranges:
            found[own[begin:end]] = number
            number += 1
    return found


def _columns(table: GhostTable, server: LocalGraph, interval_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """The interval of each row of the gathered table."""
    return np.concatenate([interval_of[server.vertices], interval_of[table.ghosts]])


@kernel
def _mark_reads(
    indptr: Ids, indices: IntArray, columns: IntArray, reachable: int, reads: Any, first: int, last: int
) -> None:
    """reads[k] = True for the intervals k that the edges of rows first:last lead to.

    reachable: how many intervals `columns` names; the interval itself is one of them, unless it is empty
    """
    found = 1
    for e in range(indptr[first], indptr[last]):
        k = columns[indices[e]]
        if not reads[k]:
            reads[k] = True
            found += 1
            if found == reachable:
                return

"""Reads: which intervals the gathers of an interval read rows from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.graph.csr import IntArray
from siafu.graph.partition.ghosts import GhostTable, Ids, LocalGraph
from siafu.jit import kernel
from siafu.threads import run_all

Bounds = Sequence[tuple[int, int]]  # of one server's intervals: ranges of its vertices that follow each other
Mask = NDArray[np.bool_]


class Reads(NamedTuple):
    """Who reads whose rows; intervals are numbered from the first server's first to the last server's last.

    forward:  [K, K]; forward[i, j]: some vertex of interval i has an in-edge from one of j
    backward: [K, K]; likewise by out-edges; the very same matrix where all servers' edges are symmetric

    Every interval reads itself.
    """

    forward: Mask
    backward: Mask


def interval_reads(servers: Sequence[LocalGraph], bounds: Sequence[Bounds]) -> Reads:
    """Found in one pass over the edges, which ends as soon as an interval is known to read all that there is."""
    first = np.concatenate([[0], np.cumsum([len(own) for own in bounds])])
    interval_of = _intervals_of_vertices(servers, bounds, first)
    count = int(first[-1])

    def matrix(tables: list[GhostTable]) -> Mask:
        reads = np.eye(count, dtype=np.bool_)
        run_all(
            lambda work: _mark_reads(*work),
            [
                (*table.edges[:2], columns, reachable, reads[first[s] + k], *span)
                for s, table in enumerate(tables)
                for columns in [_columns(table, servers[s], interval_of)]
                for reachable in [len(np.unique(columns))]
                for k, span in enumerate(bounds[s])
            ],
        )
        return reads

    forward = matrix([server.forward for server in servers])
    if all(server.backward is server.forward for server in servers):
        return Reads(forward, forward)
    return Reads(forward, matrix([server.backward for server in servers]))


def _intervals_of_vertices(
    servers: Sequence[LocalGraph], bounds: Sequence[Bounds], first: Ids
) -> NDArray[np.int32]:
    """[V] the interval of each vertex."""
    found = np.empty(sum(len(server.vertices) for server in servers), np.int32)
    for server, own, number in zip(servers, bounds, first, strict=False):
        for k, (begin, end) in enumerate(own):
            found[server.vertices[begin:end]] = number + k
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

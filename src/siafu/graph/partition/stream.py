"""The streaming partition: Fennel, one pass over the vertices in order; its memory does not grow with the edges.

C. Tsourakakis, C. Gkantsidis, B. Radunovic, M. Vojnovic: FENNEL: Streaming Graph Partitioning for Massive Scale
Graphs, WSDM 2014. A vertex goes where most of its neighbours already are, less a price for every vertex that is
there: with γ = 3/2 the price of a server that holds n vertices is 3/2 · α · √n, α = √parts · edges / V^(3/2).

Two things are ours. Sizes are measured in vertices and edges together, so that hubs don't pile up on one server. And
where edges have a direction, a vertex only sees its in-edges: it leaves a vote with each source that is still to
come, who keeps the majority of its votes (Boyer and Moore's way, one candidate and one count a vertex).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import IntArray
from siafu.graph.graph import Graph
from siafu.graph.partition.intervals import intervals, vertex_costs
from siafu.graph.partition.partition import Owners, owner_dtype
from siafu.graph.progress import ProgressCallback, silent

SLACK = 0.1  # how far above the mean a server may be filled
_EDGES_AT_ONCE = 1 << 22  # between two words of progress


def capacity(costs: NDArray[np.int64], parts: int) -> float:
    """Capacity of a server: a tenth above the mean cost.

    Only a vertex that fits nowhere goes over it, to the lightest server: no server ends above the mean and the
    heaviest vertex together, or above this, whichever is more.
    """
    return (1 + SLACK) * float(costs.sum()) / parts


def stream_owners(graph: Graph, parts: int, progress: ProgressCallback = silent) -> Owners:
    """Place every vertex once, in order. Holds a few numbers a vertex and a server, none an edge."""
    costs = vertex_costs(graph.indptr)
    owner = np.zeros(graph.num_vertices, owner_dtype(parts))
    load = np.zeros(parts, np.float64)
    full, price = capacity(costs, parts), _price(graph, parts, float(costs.sum()))
    candidate = votes = None
    if not graph.is_symmetric:
        candidate, votes = np.zeros_like(owner), np.zeros(graph.num_vertices, np.int32)
    seen, touched = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    steps = max(1, min(graph.num_vertices, graph.num_edges // _EDGES_AT_ONCE))
    progress("placing edges", 0, graph.num_edges)
    for first, last in intervals(graph.indptr, steps):
        _place(
            graph.indptr, graph.indices, costs, first, last, full, price, owner, load, seen, touched, candidate, votes
        )  # fmt: skip
        progress("placing edges", int(graph.indptr[last]), graph.num_edges)
    return owner


def _price(graph: Graph, parts: int, total_cost: float) -> float:
    """Factor of the square root of a server's load."""
    links = graph.num_edges / 2 if graph.is_symmetric else graph.num_edges
    alpha = math.sqrt(parts) * links / graph.num_vertices**1.5
    vertices_per_cost = graph.num_vertices / total_cost
    return float(1.5 * alpha * math.sqrt(vertices_per_cost))


@kernel
def _place(
    indptr: NDArray[np.int64],
    indices: IntArray,
    costs: NDArray[np.int64],
    first: int,
    last: int,
    full: float,
    price: float,
    owner: Owners,
    load: NDArray[np.float64],
    seen: NDArray[np.int64],
    touched: NDArray[np.int64],
    candidate: Any,
    votes: Any,
) -> None:
    """Give the vertices from `first` up to `last` an owner; those before `first` have theirs.

    seen, touched: [parts] scratch; `seen` is all zeros, before and after
    """
    lightest = np.argmin(load)
    for v in range(first, last):
        found = 0
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] >= v:
                break
            p = owner[indices[e]]
            if seen[p] == 0:
                touched[found] = p
                found += 1
            seen[p] += 1
        if votes is not None and votes[v] > 0:
            p = candidate[v]
            if seen[p] == 0:
                touched[found] = p
                found += 1
            seen[p] += votes[v]

        best = lightest
        best_score = seen[lightest] - price * math.sqrt(load[lightest])
        for t in range(found):
            p = touched[t]
            score = seen[p] - price * math.sqrt(load[p])
            if score > best_score and load[p] + costs[v] <= full:
                best, best_score = p, score
            seen[p] = 0

        owner[v] = best
        load[best] += costs[v]
        if best == lightest:
            lightest = np.argmin(load)
        if votes is not None:
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if u > v:
                    if votes[u] == 0:
                        candidate[u] = best
                    votes[u] += 1 if candidate[u] == best else -1

"""A graph phase run on several servers, interval by interval, with rows copied by hand from table to table."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from siafu import Graph
from siafu.graph.partition import Partition, intervals
from siafu.server import Exchange, LocalGather, ServerEdges
from siafu.server.rows.sent_rows import SentTable, keep_packed, packed_rows

MakeGather = Callable[[ServerEdges], LocalGather]


class Ran(NamedTuple):
    """out: [V, D] what was gathered; sent: gradients of what was sent; weights: gradients by name, of all intervals."""

    out: torch.Tensor
    sent: list[torch.Tensor]
    weights: dict[str, torch.Tensor]


def partition_of(graph: Graph, parts: int, seed: int = 0) -> Partition:
    """Vertices dealt at random; with three servers, the middle one owns nothing."""
    owner = np.random.default_rng(seed).integers(0, parts, graph.num_vertices)
    if parts == 3:
        owner[owner == 1] = 0
    return Partition("hash", parts, owner.astype(np.uint16))


def run_phase(
    graph: Graph,
    partition: Partition,
    make: MakeGather,
    sent: Sequence[torch.Tensor],
    gradient: torch.Tensor,
    *,
    count: int = 1,
    dropout: float = 0.0,
    seed: int = 0,
    weights: dict[str, torch.Tensor] | None = None,
) -> Ran:
    """Forward and back; gradients of rows that are not needed are not sent."""
    servers = [ServerEdges.of(graph, partition, server) for server in range(partition.parts)]
    gathers = [make(server) for server in servers]
    ids = [torch.from_numpy(server.local.vertices) for server in servers]
    spans = [
        (k, first, last)
        for k, server in enumerate(servers)
        for first, last in intervals(server.local.forward.edges.indptr, count)
    ]
    poison(gathers)
    for k, first, last in spans:
        gathers[k].send(first, last, tuple(rows[ids[k]][first:last] for rows in sent))
    copy_rows([g.sent_forward.sent[0] for g in gathers], [g.forward_exchange for g in gathers])
    out = torch.zeros_like(gradient)
    for k, first, last in spans:
        out[ids[k][first:last]] = gathers[k].forward(first, last, dropout=dropout, seed=seed, weights=weights)
    for k, first, last in spans:
        mine = gradient[ids[k]]
        needed = gathers[k].needed
        rows = slice(first, last)
        if needed is not None:
            rows = torch.from_numpy(needed[(needed >= first) & (needed < last)])
        gathers[k].send_back(first, last, mine[rows])
    copy_rows([g.sent_backward.sent[0] for g in gathers], [g.backward_exchange for g in gathers])
    of_sent = [torch.full_like(rows, torch.nan) for rows in sent]
    of_weights: dict[str, torch.Tensor] = {}
    for k, first, last in spans:
        found = gathers[k].backward(first, last, dropout=dropout, seed=seed, weights=weights)
        for total, part in zip(of_sent, found.sent, strict=True):
            assert part.shape == (last - first, total.shape[1])
            total[ids[k][first:last]] = part
        for name, part in found.weights.items():
            of_weights[name] = of_weights.get(name, torch.zeros(())) + part
    return Ran(out, of_sent, of_weights)


def poison(gathers: list[LocalGather]) -> None:
    """A ghost row that is read although nobody sends it shall show; backward, those that nobody needs stay zero."""
    for gather in gathers:
        for table in gather.forward_tables:
            fill_with_nan(table[gather.server.own :], slice(None))
        for table in gather.backward_tables:
            fill_with_nan(table, gather.backward_exchange.receive.values)


def fill_with_nan(table: np.ndarray, rows: slice | np.ndarray) -> None:
    table[rows] = 0x7FC0 if table.dtype == np.uint16 else np.nan


def copy_rows(tables: list[list[SentTable]], exchanges: list[Exchange]) -> None:
    """Rows come in two pieces, as those of two intervals."""
    for me, exchange in enumerate(exchanges):
        for other, theirs in enumerate(exchanges):
            for table, source in zip(tables[me], tables[other], strict=True):
                rows, slots = theirs.send[me], exchange.receive[other]
                for first, last in itertools.pairwise((0, len(rows) // 3, len(rows))):
                    packed = packed_rows(source, rows[first:last])
                    keep_packed(packed, table, other, first, slots[first:last])


def some_graph(
    *, symmetric: bool = False, weighted: bool = False, vertices: int = 40, edges: int = 220, seed: int = 0
) -> Graph:
    """Self-loops, parallel edges, a hub, and vertices without any edge."""
    rng = np.random.default_rng(seed)
    src, dst = (rng.random((2, edges)) ** 2 * (vertices - 4)).astype(np.int64)
    src[:6], dst[:6] = [3, 3, 7, 7, 0, 0], [3, 3, 7, 9, 0, 5]
    src[6:8], dst[6:8] = 8, 2
    weights = rng.integers(1, 9, edges) / 4 if weighted else None
    return Graph.from_edges(src, dst, num_vertices=vertices, edge_weight=weights, undirected=symmetric)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 2e-5}

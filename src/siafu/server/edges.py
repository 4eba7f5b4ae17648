"""ServerEdges: one server's edges as gathers walk them, and what all of its gathers share."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.storage.mapped import mapped_array
from siafu.graph import Graph
from siafu.graph.csr import Csr
from siafu.graph.partition import ByServer, GhostTable, LocalGraph, Partition, edge_numbers, local_graph
from siafu.kernels import Blocks, HubEdges, block_edges, block_size, cut_hubs, hub_rows
from siafu.kernels.advice.advisor import Advisor, WalkShape
from siafu.server.gathers.gather_tables import GatherTables
from siafu.server.gathers.on_disk.edge_buckets import EdgeBuckets, Ranges
from siafu.server.gathers.on_disk.source_counts import SourceCounts
from siafu.server.restrict import edges_to, rows_read, rows_read_by

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

WORTH_A_COPY = 0.95  # of the edges: where more stay, leaving some out saves less than a copy costs


@dataclass(frozen=True, slots=True)
class Exchange:
    """Which rows of a phase's tables travel between servers, in one direction.

    send:    to each server, own rows of the table
    receive: from each server, ghost rows of the table

    What s sends to t, in s's order, is what t receives from s, in t's order.

    by_interval: rows of the table are intervals, by their numbers among those of all servers, instead of vertices
    """

    send: ByServer
    receive: ByServer
    by_interval: bool = False


@dataclass(eq=False)
class Walk:
    """One direction of a server's edges, as the gathers of a phase walk them.

    whole:    all edges by own row; columns are rows of the gathered table
    columns:  rows of the gathered table: own ones, then ghosts
    exchange: which rows other servers and this one need of each other
    ids:      [columns] global ids of the table's rows; None: the rows' numbers are the ids
    drawn:    [columns] what dropout calls the table's rows: the user's numbers of the vertices; None: the rows' numbers
    picked:   the rows that are gathered for, ascending; None: all
    kept:     [columns] whether anything is gathered from there; None: from everywhere
    typed:    edges by row and type, by the gathers that put them in order
    numbering: the places of all edges of a direction among the graph's; None where edges have neither features nor types
    scratch:  a directory for the copy of the edges that are kept; None: it is in memory
    counted:  sources of groups of rows, by the number of groups
    """

    whole: Csr
    columns: int
    exchange: Exchange
    ids: Ids | None
    picked: Ids | None = None
    kept: Mask | None = None
    drawn: Ids | None = None
    numbering: Callable[[str], NDArray[Any] | None] | None = None
    scratch: Path | None = None
    _blocks: dict[Any, Blocks] = field(default_factory=dict)
    _weights: dict[np.dtype[Any], NDArray[Any]] = field(default_factory=dict)
    _numbers: dict[str, NDArray[Any] | None] = field(default_factory=dict)
    typed: dict[Any, Any] = field(default_factory=dict)
    counted: dict[int, SourceCounts] = field(default_factory=dict)
    _bucketed: dict[Any, EdgeBuckets] = field(default_factory=dict)

    @cached_property
    def edges(self) -> Csr:
        """The edges that are kept, row by row."""
        if self.kept is None:
            return self.whole
        allocate = np.empty if self.scratch is None else partial(mapped_array, self.scratch)
        return edges_to(self.whole, self.kept, at_most=WORTH_A_COPY, allocate=allocate) or self.whole

    @property
    def received(self) -> list[Ids]:
        """From each server, where its rows go in the table."""
        return [self.exchange.receive[server] for server in range(len(self.exchange.receive.starts) - 1)]

    def shape(self, row_bytes: int, *, weighted: bool) -> WalkShape:
        """The edges in figures, for rows so long."""
        weights = weighted and self.whole.weights is not None
        rows, edges = len(self.whole.indptr) - 1, len(self.whole.indices)
        return WalkShape(rows, edges, self.columns, row_bytes, self._percent, weights)

    @cached_property
    def _percent(self) -> int:
        """Of the edges that are gathered along."""
        indptr, edges = self.whole.indptr, max(1, len(self.whole.indices))
        if self.picked is not None:
            return round(100 * int((indptr[self.picked + 1] - indptr[self.picked]).sum()) / edges)
        return round(100 * len(self.edges.indices) / edges)

    def blocks(self, row_bytes: int, weights: DTypeLike | None, *, self_loops: bool) -> Blocks | None:
        """The edges in the blocks that suit rows this long; None: blocks do not pay.

        weights: the type of the edges' weights; None: they do not count
        """
        rows, edges = len(self.whole.indptr) - 1, len(self.whole.indices)
        size = block_size(rows, edges, row_bytes, sources=self.columns)
        return None if size is None else self.in_blocks(size, weights, self_loops=self_loops)

    def in_blocks(self, size: int, weights: DTypeLike | None, *, self_loops: bool) -> Blocks:
        """The edges in blocks of so many sources."""
        counted = None if weights is None else self.whole.weights
        key = size, None if counted is None else np.dtype(weights), self_loops
        if key not in self._blocks:
            self._blocks[key] = block_edges(
                self.whole.indptr,
                self.whole.indices,
                None if counted is None else counted.astype(np.dtype(weights), copy=False),
                size,
                sources=self.columns,
                picked=self.picked,
                kept=self.kept,
                self_loops=self_loops,
            )
        return self._blocks[key]

    def in_buckets(
        self, groups: Ranges, partitions: Ranges, weights: DTypeLike | None, hubs: HubEdges, directory: Path
    ) -> EdgeBuckets:
        """The edges in the order of groups of rows and partitions of sources, in scratch files; without those of hubs.

        weights: as for `blocks`
        """
        key = len(groups), len(partitions), None if weights is None else np.dtype(weights)
        if key not in self._bucketed:
            apart = np.array([hub.row for hub in hubs.hubs], np.int64)
            counted = None if weights is None else self.weights(weights)
            allocate = partial(mapped_array, directory)
            made = EdgeBuckets.of(self.edges, counted, (self.picked, apart), groups, partitions, allocate)
            self._bucketed[key] = made
        return self._bucketed[key]

    def hubs(self, weights: DTypeLike | None, *, self_loops: bool, blocked: bool = False) -> HubEdges:
        """The rows that are gathered for and have very many edges; `blocks` has no edge of theirs.

        weights: as for `blocks`
        blocked: the other rows are walked in blocks, and no copy of the edges that are kept is wanted
        """
        rows = self._hub_rows
        places = rows if self.picked is None else np.searchsorted(self.picked, rows)
        if not len(rows):
            return HubEdges([], places, self.whole.indices, None)
        left = self._kept_edges_of(rows) if blocked and self.kept is not None else self.edges
        whole = self.whole.indptr, self.whole.indices
        hubs = cut_hubs(rows, whole, (left.indptr, left.indices), self_loops=self_loops)
        counted = None
        if weights is not None and left.weights is not None:
            # The same numbers as other rows have, where they have the same edges.
            counted = self.weights(weights) if left is self.edges else left.weights.astype(np.dtype(weights))
        return HubEdges(hubs, places, left.indices, counted)

    @cached_property
    def _hub_rows(self) -> Ids:
        rows = hub_rows(self.whole.indptr)
        return rows if self.picked is None else rows[np.isin(rows, self.picked)]

    def _kept_edges_of(self, rows: Ids) -> Csr:
        """The edges of some rows that are kept; other rows have none."""
        assert self.kept is not None
        indptr, indices, weights = self.whole
        counts = np.zeros(len(indptr) - 1, np.int64)
        counts[rows] = np.diff(indptr)[rows]
        picked = np.concatenate([np.arange(indptr[row], indptr[row + 1]) for row in rows])
        some = Csr(
            np.concatenate([[0], np.cumsum(counts)]),
            indices[picked],
            None if weights is None else weights[picked],
        )
        found = edges_to(some, self.kept, at_most=1.0)
        assert found is not None
        return found

    def held(self) -> list[Blocks]:
        """The blocks that were made."""
        return list(self._blocks.values())

    def numbers(self, direction: str) -> NDArray[Any] | None:
        """[edges] place of each edge among the graph's in-edges; None: the same.

        direction: of the walk, forward or backward
        """
        assert self.numbering is not None
        if direction not in self._numbers:
            found = self.numbering(direction)
            if self.kept is not None and self.edges is not self.whole:
                carried: Any = np.arange(len(self.whole.indices)) if found is None else found
                some = edges_to(self.whole._replace(weights=carried), self.kept, at_most=1.0)
                assert some is not None
                found = some.weights
            self._numbers[direction] = found
        return self._numbers[direction]

    def weights(self, dtype: DTypeLike) -> NDArray[Any] | None:
        """The edges' weights in the type that rows are summed in; None: every edge weighs 1."""
        if self.edges.weights is None:
            return None
        kind = np.dtype(dtype)
        if kind not in self._weights:
            self._weights[kind] = self.edges.weights.astype(kind, copy=False)
        return self._weights[kind]


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """Both directions of one phase's edges.

    needed: own rows that somebody will read of what is gathered, ascending; None: all
    """

    forward: Walk
    backward: Walk
    needed: Ids | None

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Where in `needed` the rows from `first` up to `last` are; those numbers themselves if all are needed."""
        if self.needed is None:
            return first, last
        lo, hi = np.searchsorted(self.needed, (first, last))
        return int(lo), int(hi)


class ServerEdges:
    """One server's edges. Gathers made of one ServerEdges share its arrays.

    graph:  the whole graph, of which scalings are taken
    local:  the part that is the server's
    tables: where the rows of a gather live that is made of it; None: in tables of its own
    scratch: a directory for copies of edges; None: they are in memory
    advisor: chooses how its edges are walked; None: the rules do, and blocks are for a core's own cache alone
    """

    def __init__(
        self,
        graph: Graph,
        partition: Partition,
        local: LocalGraph,
        scratch: Path | None = None,
        advisor: Advisor | None = None,
    ) -> None:
        self.advisor = advisor
        self.graph, self.local, self._partition, self._scratch = graph, local, partition, scratch
        self._restricted: list[tuple[Mask, Walks]] = []
        self.tables: GatherTables | None = None
        self._known_numbers: dict[str, NDArray[Any] | None] = {}

    @classmethod
    def of(
        cls,
        graph: Graph,
        partition: Partition,
        server: int,
        scratch: Path | None = None,
        advisor: Advisor | None = None,
    ) -> "ServerEdges":
        if scratch is None:
            return cls(graph, partition, local_graph(graph, partition, server), None, advisor)
        graph = graph.with_mapped_out_edges(scratch)
        return cls(
            graph,
            partition,
            local_graph(graph, partition, server, partial(mapped_array, scratch)),
            scratch,
            advisor,
        )

    @property
    def own(self) -> int:
        """How many vertices the server owns."""
        return len(self.local.vertices)

    @property
    def aligned(self) -> bool:
        """Whether gradients of remote vertices come for the same ghosts, in the same order, as their rows do."""
        forward, backward = self.local.forward, self.local.backward
        return backward is forward or not len(forward.ghosts) + len(backward.ghosts)

    @property
    def own_numbers(self) -> Ids:
        """The user's numbers of the own vertices."""
        numbers = self._user_numbers(self.local.vertices)
        return self.local.vertices if numbers is None else numbers

    def _user_numbers(self, ids: Ids | None) -> Ids | None:
        """Of vertices by their ids; None stands for all, and for the same."""
        if self.graph.renumbered is None:
            return ids
        order = self.graph.renumbered.order.astype(np.int64)
        return order if ids is None else order[ids]

    def placing(self, tables: GatherTables) -> "ServerEdges":
        """The same edges, for a gather whose rows live in these tables."""
        assert self._whole is not None  # made once, for all
        found = copy(self)
        found.tables = tables
        return found

    def own_part(self, of_all: NDArray[Any] | None) -> NDArray[Any] | None:
        """The own vertices' entries of an array over all vertices; the array itself if they are all."""
        if of_all is None or self._alone:
            return of_all
        return of_all[self.local.vertices]

    def walks(self, needed: Mask | None = None) -> Walks:
        """The edges that a phase walks.

        needed: [V] over all vertices of the graph: whether somebody will read what is gathered for them; None: all
        """
        if needed is None or bool(needed.all()):
            return self._whole
        for mask, walks in self._restricted:
            if np.array_equal(mask, needed):
                return walks
        walks = self._restrict(needed)
        self._restricted.append((needed.copy(), walks))
        return walks

    @property
    def held_bytes(self) -> int:
        """Memory for the edges, and for those that are held once more in the order in which blocks are walked."""
        local = self.local
        tables = {id(table): table for table in (local.forward, local.backward)}
        arrays = [each for table in tables.values() for each in table.edges if each is not None]
        walks = [self._whole, *(walks for _, walks in self._restricted)]
        blocks = {
            id(each): each for both in walks for walk in (both.forward, both.backward) for each in walk.held()
        }
        arrays += [array for each in blocks.values() for array in each if isinstance(array, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    @property
    def _alone(self) -> bool:
        return self._partition.parts == 1

    @cached_property
    def _whole(self) -> Walks:
        forward = self._walk(self.local.forward)
        symmetric = self.local.backward is self.local.forward
        return Walks(forward, forward if symmetric else self._walk(self.local.backward), None)

    def _walk(self, table: GhostTable) -> Walk:
        columns = self.own + len(table.ghosts)
        ids = None if self._alone else np.concatenate([self.local.vertices, table.ghosts])
        exchange = Exchange(table.send, self._shifted(table.receive))
        return Walk(
            table.edges, columns, exchange, ids, drawn=self._user_numbers(ids), numbering=self._numbering
        )

    def _numbering(self, direction: str) -> NDArray[Any] | None:
        if direction not in self._known_numbers:
            self._known_numbers[direction] = edge_numbers(self.graph, self.local, direction)
        return self._known_numbers[direction]

    def _shifted(self, ghosts: ByServer) -> ByServer:
        return ByServer(ghosts.starts, ghosts.values + self.own)

    def _restrict(self, needed: Mask) -> Walks:
        """Forward, the rows that are not needed are passed over; backward, edges to them are left out."""
        rows = np.flatnonzero(needed[self.local.vertices])
        return Walks(self._forward(needed, rows), self._backward(needed), rows)

    def _forward(self, needed: Mask, rows: Ids) -> Walk:
        whole, ghosts = self._whole.forward, self.local.backward.ghosts
        if self._alone:
            return replace(whole, picked=rows, _blocks={}, _numbers={}, typed={}, counted={}, _bucketed={})
        owner, parts = self._partition.owner, self._partition.parts
        read = rows_read(whole.edges, rows, whole.columns)
        readers = np.concatenate([np.full(self.own, self.local.server), owner[ghosts]])
        counts = np.concatenate([needed[self.local.vertices], needed[ghosts]])
        send = rows_read_by(self.local.backward.edges, readers, counts, self.local.server, parts)
        exchange = Exchange(send, _kept(whole.exchange.receive, read))
        return replace(
            whole,
            exchange=exchange,
            picked=rows,
            _blocks={},
            _numbers={},
            typed={},
            counted={},
            _bucketed={},
        )

    def _backward(self, needed: Mask) -> Walk:
        whole = self._whole.backward
        counts = needed if whole.ids is None else needed[whole.ids]
        exchange = Exchange(_kept(whole.exchange.send, counts), _kept(whole.exchange.receive, counts))
        return Walk(
            whole.whole,
            whole.columns,
            exchange,
            whole.ids,
            kept=counts,
            drawn=whole.drawn,
            numbering=self._numbering,
            scratch=self._scratch,
        )


def _kept(rows: ByServer, mask: Mask) -> ByServer:
    """Those of the listed rows that the mask has."""
    stay = mask[rows.values]
    before = np.concatenate([[0], np.cumsum(stay)])
    return ByServer(before[rows.starts], rows.values[stay])

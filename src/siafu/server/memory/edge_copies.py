"""Edges in memory: the server's own, and the copies that its gathers make."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.storage.mapped import mapped_file
from siafu.graph import Graph
from siafu.graph.csr import id_dtype
from siafu.kernels import MAX_TILE, block_size, padded
from siafu.kernels.advice.advisor import ONE_WALK, Advisor, WalkShape
from siafu.nn.gathers.gather import Sum
from siafu.nn.gathers.relation_sum import RelationSum
from siafu.pipeline.ids import LaneName
from siafu.program.program import GatherStep, Program
from siafu.server.edges import WORTH_A_COPY
from siafu.server.gathers.by_columns.column_space import widest_slice
from siafu.server.gathers.local_gather import stored_size
from siafu.server.memory.memory_list import Allocation, Lifetime
from siafu.server.memory.needed_rows import NeededRows
from siafu.server.memory.server_part import ServerPart
from siafu.server.memory.type_counts import type_counts

_POINTER, _START, _PLACE = (
    8,
    4,
    2,
)  # bytes of a row's first edge, of that in a block, and of a source in a block
_LINE = 64  # bytes of a cache line
_RESTRICTED = "edges to the rows that are needed"


def is_mapped(array: NDArray[Any] | None) -> bool:
    """Whether an array is a file's pages."""
    return mapped_file(array) is not None


def graph_edges(
    graph: Graph, parts: Sequence[ServerPart], *, on_disk: bool = False, numbered: bool = False
) -> Iterator[Allocation]:
    """The graph's own edges, those of its transpose, and each server's part where there are several.

    on_disk:  copies of edges are in mapped scratch files
    numbered: a gather finds what edges have by their numbers, whether they have features and types or a weight alone
    """
    arrays = [each for each in graph.in_edges if each is not None]
    mapped, size = is_mapped(graph.indices), sum(each.nbytes for each in arrays)
    yield Allocation("in-edges", size, Lifetime.RUN, "the graph as it is given", mapped=mapped)
    yield from _edge_rows(graph, parts, numbered)
    symmetric = graph.is_symmetric
    if not symmetric:
        pointers = graph.indptr.nbytes if on_disk else 0
        edges, purpose = size - pointers, "gathers of gradients walk them"
        yield Allocation("out-edges", edges, Lifetime.RUN, purpose, mapped=on_disk)
        yield Allocation("out-edges, by vertex", pointers, Lifetime.RUN, "where they begin")
    for part in parts:
        if part.alone:
            continue
        edge = graph.indices.itemsize + (0 if graph.edge_weight is None else graph.edge_weight.itemsize)
        ghosts = part.forward_ghosts if symmetric else part.forward_ghosts + part.backward_ghosts
        pointers = _POINTER * (part.vertices + 1) * (1 if symmetric else 2)
        found, purpose = (
            part.edges + (0 if symmetric else part.out_edges),
            "each server's part, with its ghosts",
        )
        yield Allocation("servers' edges", edge * found, Lifetime.RUN, purpose, mapped=on_disk)
        yield Allocation("servers' edges, by vertex", pointers, Lifetime.RUN, purpose)
        yield Allocation("ghosts' ids", 3 * _POINTER * ghosts, Lifetime.RUN, "which rows servers exchange")


def edge_shares(graph: Graph, programs: Collection[Program], itemsize: int) -> Iterator[Allocation]:
    """Factors of edges in means by type, which all servers share."""
    gathers = [step.site.gather for each in programs for group in each.gathers for step in group]
    if any(isinstance(each, RelationSum) and each.mean for each in gathers):
        found, purpose = itemsize * graph.num_edges, "one over the number of edges of a vertex and a type"
        yield Allocation("edges' shares", found, Lifetime.SERVERS, purpose)


def _edge_rows(graph: Graph, parts: Sequence[ServerPart], numbered: bool) -> Iterator[Allocation]:
    """Features and types of edges, and by which numbers gathers find them."""
    found = [each for each in (graph.edge_attr, graph.edge_type) if each is not None]
    if not found and not numbered:
        return
    if found:
        size, mapped = sum(each.nbytes for each in found), all(is_mapped(each) for each in found)
        yield Allocation("edges' features and types", size, Lifetime.RUN, "as they are given", mapped=mapped)
    several = sum(part.edges + part.out_edges for part in parts if not part.alone)
    number = np.dtype(id_dtype(graph.num_edges)).itemsize
    yield Allocation(
        "edges' numbers",
        number * (graph.num_edges + several),
        Lifetime.RUN,
        "by which features and types are found",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """One direction of the edges that a gather walks: its block copies are shared by all gathers of the same key."""

    key: str
    rows: int
    picked: int
    columns: int
    whole: int
    edges: int
    copied: bool
    back: bool = False


@dataclass(slots=True)
class EdgeCopies:
    """The copies of edges that one server's gathers make; those that two gathers share are listed once.

    on_disk: gathers of a lane, by place, that read their rows from disk: they go by buckets, and walk edges as they are
    mapped:  the copies of some of the edges are in mapped scratch files
    advisor: the servers'; None: the rules say how edges are walked
    columns: those of gathers by columns, for which the part is the whole graph; else of all others
    partitions: of sources, where edges are copied in the order of buckets; 0: they are not
    cache:   bytes of a core's own; None: this machine's
    """

    graph: Graph
    part: ServerPart
    itemsize: int
    on_disk: Mapping[LaneName, frozenset[int]]
    mapped: bool = False
    advisor: Advisor | None = None
    columns: bool = False
    partitions: int = 0
    cache: int | None = None

    def of(
        self, programs: Mapping[LaneName, Program], needs: Mapping[LaneName, NeededRows]
    ) -> Iterator[Allocation]:
        """needs: the rows that the last phase of each lane computes"""
        known: set[object] = set()
        for lane, program in programs.items():
            needed, training = needs[lane], lane == "train"
            last = len(program.gathers) - 1
            for depth, group in enumerate(program.gathers):
                only = needed if depth == last and not needed.are_all else None
                for step in (each for each in group if bool(each.slices) == self.columns):
                    for walk in self._walks(only, training=training):
                        in_blocks = depth not in self.on_disk[lane]
                        yield from self._copies(program, step, walk, known, in_blocks=in_blocks)

    def _walks(self, only: NeededRows | None, *, training: bool) -> Iterator[_Walk]:
        part, rows = self.part, self.part.rows
        symmetric = self.graph.is_symmetric
        key = (
            "" if only is None else f" into {only.count} rows"
        )  # of two lanes one's rows are among the other's
        picked = part.vertices if only is None else round(part.vertices * only.share)
        edges = part.edges if only is None else round(part.edges * only.edge_share)
        forward = f"forward{key}"
        yield _Walk(forward, part.vertices, picked, rows.forward, part.edges, edges, copied=False)
        if not training:
            return
        back = forward if symmetric and only is None else f"backward{key}"
        kept = part.out_edges if only is None else round(part.out_edges * only.edge_share)
        copied = only is not None and kept <= WORTH_A_COPY * part.out_edges
        yield _Walk(
            back, part.vertices, part.vertices, rows.backward, part.out_edges, kept, copied, back=True
        )

    def _copies(
        self, program: Program, step: GatherStep, walk: _Walk, known: set[object], *, in_blocks: bool
    ) -> Iterator[Allocation]:
        gather = step.site.gather
        if isinstance(gather, RelationSum):
            yield from self._by_type(gather, walk, known, on_disk=not in_blocks)
        weighted = getattr(gather, "weighted", False) and self.graph.edge_weight is not None
        if self.partitions and isinstance(gather, Sum) and step.edge is None and not in_blocks:
            yield from self._in_buckets(walk, known, weight=self.itemsize if weighted else 0)
        plain = not isinstance(gather, Sum) or step.edge is not None or not in_blocks
        if not plain:
            width, stored = program.shapes[step.sent[0]][0], stored_size(gather, self.itemsize)
            width = widest_slice(width, 0, step.slices).width if step.slices else width
            tiles = [
                (each, block_size(walk.rows, walk.whole, size, sources=walk.columns, cache=self.cache))
                for each, size in slabs(width, stored)
            ]
            sizes = {size: "gathers walk dense graphs so" for _, size in tiles if size is not None}
            walked = sum(each for each, size in tiles if size is None)
            if walked:  # all of these columns together
                plain = True
                far = self._far(walk, max(walked * stored, _LINE), weighted)
                sizes |= {} if far is None else {far: "the cache that cores share holds one"}
            for size, purpose in sizes.items():
                key = walk.key, size, weighted, getattr(gather, "self_loops", False)
                if key not in known:
                    known.add(key)
                    weight = self.itemsize if weighted else 0
                    taken = blocks_bytes(walk.picked, walk.columns, walk.edges, size, weight)
                    yield Allocation("edges in blocks", taken, Lifetime.SERVERS, purpose)
        if plain and walk.copied and (walk.key, "plain") not in known:
            known.add((walk.key, "plain"))
            edge = self.graph.indices.itemsize + (0 if self.graph.edge_weight is None else 4)
            pointers, purpose = _POINTER * (walk.rows + 1), "the last gather's gradients go along them"
            yield Allocation(_RESTRICTED, edge * walk.edges, Lifetime.EPOCHS, purpose, mapped=self.mapped)
            yield Allocation(f"{_RESTRICTED}, by vertex", pointers, Lifetime.EPOCHS, purpose)

    def _by_type(
        self, gather: RelationSum, walk: _Walk, known: set[object], *, on_disk: bool
    ) -> Iterator[Allocation]:
        """Edges by row and type; of gathers from disk in mapped files, beside the places of each type's edges."""
        key = walk.key, walk.back, "typed", gather.mean, on_disk
        if key in known:
            return
        known.add(key)
        edges, purpose = walk.edges if walk.copied else walk.whole, "gathers walk a type after the other"
        edge = self.graph.indices.itemsize + 4 + (self.itemsize if gather.mean else 0)
        yield Allocation("edges by type", edge * edges, Lifetime.SERVERS, purpose, mapped=on_disk)
        if on_disk:
            pairs = type_counts(self.graph, self.part)[walk.back]
            found = _POINTER * (walk.rows + 1) + (_POINTER + _START) * pairs
            yield Allocation("edges by type, by vertex", found, Lifetime.SERVERS, "where each type begins")

    def _far(self, walk: _Walk, row_bytes: int, weighted: bool) -> int | None:
        """Number of sources in a block for the cache that cores share; None: there are no such blocks."""
        if self.advisor is None:
            return None
        share = round(100 * walk.edges / max(1, walk.whole))
        choice = self.advisor.walking(
            WalkShape(walk.rows, walk.whole, walk.columns, row_bytes, share, weighted)
        )
        return None if choice.chosen == ONE_WALK else choice.ways[-1]

    def _in_buckets(self, walk: _Walk, known: set[object], *, weight: int) -> Iterator[Allocation]:
        if (walk.key, "buckets", weight) not in known:
            known.add((walk.key, "buckets", weight))
            found = bucket_bytes(self.graph, walk.rows, walk.edges, self.partitions, weight)
            purpose = "each is read once a gather"
            yield Allocation("edges in the order of buckets", found, Lifetime.EPOCHS, purpose, mapped=True)


def bucket_bytes(graph: Graph, rows: int, edges: int, partitions: int, weight: int = 0) -> int:
    """Of edges in the order of buckets; weight: bytes of an edge's weight."""
    return edges * (graph.indices.itemsize + weight) + partitions * rows * _START


def blocks_bytes(rows: int, sources: int, edges: int, size: int, weight: int = 0) -> int:
    """Of `block_edges`; weight: bytes of an edge's weight."""
    return -(-sources // size) * (rows + 1) * _START + edges * (_PLACE + weight)


def slabs(width: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """Slabs of columns that a sum in blocks goes over at once: how many columns, and the bytes of a row of them."""
    columns = padded(width)
    for first in range(0, columns, MAX_TILE):
        taken = min(MAX_TILE, columns - first)
        yield taken, max(taken * itemsize, _LINE)

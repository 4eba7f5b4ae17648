"""Constant rows in memory: as they are kept, and what is there only while they are made."""

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from torch import fx

from siafu.graph import Graph
from siafu.kernels import MAX_TILE, block_size, table_row_bytes
from siafu.pipeline.ids import LaneName
from siafu.program.constants import recipes
from siafu.program.density import sampled_density
from siafu.program.program import Program
from siafu.program.record.cut import is_gather, is_row, row_shape
from siafu.server.memory.disk_share import SLOTS, DiskCut
from siafu.server.memory.edge_copies import blocks_bytes
from siafu.server.memory.memory_list import Allocation, Lifetime
from siafu.server.memory.server_hardware import ServerHardware
from siafu.server.rows.constant_type import constant_type
from siafu.server.rows.sparse_constants import sparse_constants
from siafu.tables.pages import whole_pages
from siafu.tables.row_stream import SPAN_BYTES, SPANS_A_THREAD

_FEATURES = "x"  # the recipe of constant rows that are the features themselves
_ID = 4  # bytes of a nonzero's column
_POINTER = 8


def widened_bytes(graph: Graph, itemsize: int, *, normalize: bool) -> int:
    """Of the features, where they are not used as they are stored."""
    if graph.x is None or (graph.x.itemsize == itemsize and graph.x.dtype.kind == "f" and not normalize):
        return 0
    return graph.num_vertices * graph.num_features * itemsize


class ConstantSizes:
    """The constant rows of a run's programs; those that programs share are listed once.

    dtype:    what is computed in
    sparse:   tensor tasks run here: rows of mostly zeros are held without them
    vertices: whose rows are in this process; servers: how many hold them
    disk:     how they are cut, where they are on disk
    hardware: the machine that holds them
    """

    def __init__(
        self,
        graph: Graph,
        programs: Mapping[LaneName, Program],
        dtype: Any,
        *,
        normalize: bool,
        sparse: bool,
        vertices: int,
        servers: int,
        hardware: ServerHardware,
        disk: DiskCut | None = None,
    ) -> None:
        self._graph, self._dtype, self._vertices, self._servers = graph, dtype, vertices, servers
        self._disk = disk if disk is not None and disk.constants else None
        self._normalize, self._hardware = normalize, hardware
        self._trains = "train" in programs
        self._found: dict[str, tuple[fx.Node, int, bool]] = {}
        for program in programs.values():
            size = constant_type(program, dtype).itemsize
            without_zeros = sparse_constants(program, graph) if sparse and size > 2 else frozenset()
            made = zip(program.constants, recipes(program.cut), program.cut.constants, strict=True)
            for name, recipe, node in made:
                self._found.setdefault(recipe, (node, size, name in without_zeros))

    def _density(self, recipe: str) -> float:
        """The share of nonzeros, by a few rows."""
        return sampled_density(self._graph, gathered=recipe != _FEATURES)

    def listed(self) -> Iterator[Allocation]:
        """Everything in memory."""
        if self._disk is not None:
            yield from self._streamed(self._disk)
            return
        graph, itemsize = self._graph, self._dtype.itemsize
        whole = widened_bytes(graph, itemsize, normalize=self._normalize)
        widened = whole * self._vertices // max(1, graph.num_vertices)
        dense = _FEATURES in self._found and not self._found[_FEATURES][2]
        stays = Lifetime.RUN if dense else Lifetime.MAKING
        yield Allocation(
            "features as computed with", widened, stays, "normalised, or in the type of the weights"
        )
        for recipe, (node, size, without_zeros) in self._found.items():
            yield from self._rows(recipe, node, size, without_zeros=without_zeros)
        yield from self._while_folding()

    @property
    def disk_bytes(self) -> int:
        """Of tables on disk: those of constants, and of gathers that constants are made of."""
        if self._disk is None:
            return 0
        itemsize, rows = self._dtype.itemsize, self._vertices
        ends = [(node, size) for node, size, _ in self._found.values()]
        nodes = set(chain.from_iterable(_made_of(node) for node, _ in ends))
        gathered = [(node, itemsize) for node in nodes if is_gather(node)]
        written = [(node, size) for node, size in ends if node.op != "placeholder"]
        tables = {*gathered, *written}
        return sum(whole_pages(rows * table_row_bytes(_columns(node), size)) for node, size in tables)

    def _streamed(self, cut: DiskCut) -> Iterator[Allocation]:
        """Parts of constants on disk that are in memory."""
        itemsize = self._dtype.itemsize
        ends = [node for node, _, _ in self._found.values()]
        nodes = set(chain.from_iterable(_made_of(end) for end in ends))
        written = [node for node in ends if node.op != "placeholder"]
        spans = self._servers * len(written) * self._hardware.threads * SPANS_A_THREAD * SPAN_BYTES
        yield Allocation("constant rows being read", spans, Lifetime.EPOCHS, "from tables on disk, ahead")
        widths = [
            _columns(each)
            for node in nodes
            if is_gather(node)
            for each in node.all_input_nodes
            if is_row(each)
        ]
        if widths:
            # One of several servers goes over all vertices, too, and keeps its own.
            row, rows = table_row_bytes(max(widths), itemsize), self._graph.num_vertices
            group, partition = -(-rows // cut.constants), -(-rows // cut.constant_partitions)
            found = group * (row + _POINTER) + SLOTS * partition * row
            yield Allocation(
                "groups of constant rows", found, Lifetime.FOLDING, "sums, and parts of the sources"
            )

    def _rows(self, recipe: str, node: fx.Node, size: int, *, without_zeros: bool) -> Iterator[Allocation]:
        vertices, columns = self._vertices, _columns(node)
        if recipe != _FEATURES or size != self._dtype.itemsize:
            padded = is_gather(node) and size == self._dtype.itemsize
            row = table_row_bytes(columns, size) if padded else columns * size
            stays = without_zeros or self._servers > 1
            lifetime = Lifetime.MAKING if stays else Lifetime.RUN
            name = "constant rows with zeros" if without_zeros else "constant rows"
            yield Allocation(name, vertices * row, lifetime, "made once of the features")
        if self._servers > 1:
            life = Lifetime.MAKING if without_zeros else Lifetime.SERVERS
            yield Allocation("servers' constant rows", vertices * columns * size, life, "each server's own")
        if without_zeros:
            nonzeros = round(self._density(recipe) * vertices * columns)
            # Forth by row; back by column, in every block of rows.
            one_way = nonzeros * (_ID + size) + _POINTER * vertices
            yield Allocation("constant rows without zeros", one_way, Lifetime.SERVERS, "multiplied forth")
            back = nonzeros * (_ID + size) if self._trains else 0
            yield Allocation("the same by column", back, Lifetime.EPOCHS, "multiplied back")

    def picked(self, program: Program, vertices: int) -> Iterator[Allocation]:
        """Copies of some vertices' rows that a program reads."""
        if self._disk is not None:
            yield from self._streamed(self._disk)
            return
        for recipe in dict.fromkeys(recipes(program.cut)):
            node, size, without_zeros = self._found[recipe]
            found = vertices * _columns(node) * size
            if without_zeros:  # both ways, as below
                found = 2 * round(self._density(recipe) * vertices * _columns(node)) * (_ID + size)
            yield Allocation("the training's constant rows", found, Lifetime.SERVERS, "of its own vertices")

    def _while_folding(self) -> Iterator[Allocation]:
        """What one program's constants leave behind until they are all made, and what a gather packs."""
        vertices, itemsize = self._vertices, self._dtype.itemsize
        kept = {node for node, _, _ in self._found.values()}
        ends = [node for node, _, _ in self._found.values()]
        nodes = set(chain.from_iterable(_made_of(end) for end in ends))
        between = sum(vertices * _columns(node) * itemsize for node in nodes - kept if is_row(node))
        halved = sum(
            vertices * _columns(node) * itemsize for node, size, _ in self._found.values() if size < itemsize
        )
        yield Allocation("rows between", between + halved, Lifetime.FOLDING, "constants are made of them")
        gathers = [node for node in nodes if is_gather(node)]
        widths = [_columns(each) for node in gathers for each in node.all_input_nodes if is_row(each)]
        if widths:
            yield from self._gathered_once(max(widths))

    def _gathered_once(self, width: int) -> Iterator[Allocation]:
        graph, itemsize = self._graph, self._dtype.itemsize
        row_bytes = table_row_bytes(min(MAX_TILE, width), itemsize)
        slab = self._vertices * row_bytes
        yield Allocation("a gather's packed rows", slab, Lifetime.FOLDING, "128 columns at a time")
        cache = self._hardware.near_cache
        size = block_size(graph.num_vertices, graph.num_edges, row_bytes, cache=cache)
        if size is not None:
            found = blocks_bytes(self._vertices, graph.num_vertices, graph.num_edges, size)
            yield Allocation(
                "edges in blocks, to fold", found, Lifetime.FOLDING, "gathers walk dense graphs so"
            )


def _made_of(node: fx.Node) -> set[fx.Node]:
    """A node and all that it is made of, but for what comes from outside."""
    if node.op == "placeholder":
        return set()
    return {node}.union(*(_made_of(each) for each in node.all_input_nodes))


def _columns(node: fx.Node) -> int:
    shape = row_shape(node)
    assert shape is not None
    return math.prod(shape)

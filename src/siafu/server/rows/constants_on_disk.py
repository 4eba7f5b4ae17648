"""Constants on disk: rows that are made once of the features, gathered by groups into tables on disk, never held as a whole."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from siafu.base.storage.mapped import mapped_array
from siafu.graph import Graph
from siafu.kernels import HubEdges, Table, cut_hubs, hub_rows, pack_range
from siafu.nn.gathers.gather import Sum
from siafu.nn.tensors import as_rows, storage
from siafu.program.constants import gathers_deep, recipes
from siafu.program.program import Program
from siafu.program.record.cut import Cut, is_gather, is_row, row_shape
from siafu.program.record.evaluate import evaluate
from siafu.server.gathers.local_gather import sum_type
from siafu.server.gathers.on_disk.edge_buckets import EdgeBuckets
from siafu.server.gathers.on_disk.group_sums import GroupSums
from siafu.server.memory.disk_share import SLOTS, DiskShare, equal_ranges
from siafu.server.rows.constant_type import constant_type
from siafu.server.rows.feature_rows import FeatureRows
from siafu.server.rows.sparse_constants import sparse_constants
from siafu.server.rows.streamed_rows import RowsOnDisk, StreamedFeatures, StreamedRows
from siafu.tables import DiskTable, MadeRows, PartitionReader, RowStream, lent_buffer

_AT_ONCE = 1 << 22  # bytes of rows that are made and written at a time

StreamedConstant = Tensor | StreamedRows
Ids = NDArray[np.int64]


def can_be_on_disk(program: Program, graph: Graph, servers: int) -> bool:
    """Whether all constants of a program are sums over edges, or made of such row by row, number by number.

    One of several servers makes rows of its own vertices alone: it can gather from the features, and not from what was gathered.
    """
    if servers > 1 and gathers_deep(program.cut) > 1:
        return False
    nodes = {each for end in program.cut.constants for each in _made_of(end)}
    return not sparse_constants(program, graph) and all(_is_streamed(each, program.cut) for each in nodes)


def _made_of(node: fx.Node) -> Iterator[fx.Node]:
    """A node and all rows that it is made of, but for what comes from outside."""
    if node.op != "placeholder":
        yield node
        for each in node.all_input_nodes:
            yield from _made_of(each)


def _is_streamed(node: fx.Node, cut: Cut) -> bool:
    if is_gather(node):
        site = cut.recording.sites[_site(node)]
        return isinstance(site.gather, Sum) and site.apply_edge is None
    if not is_row(node):
        return True
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _site(node: fx.Node) -> int:
    number: Any = node.args[2]
    return int(number)


class ConstantsOnDisk:
    """Constant rows of one server; those that programs share are made once.

    ranges: of rows that tasks go through, one after the other
    own:    ids of the server's vertices, ascending; None: it has all
    """

    def __init__(
        self,
        graph: Graph,
        features: FeatureRows,
        weights: Mapping[str, Tensor],
        disk: DiskShare,
        ranges: Sequence[tuple[int, int]],
        own: Ids | None = None,
    ) -> None:
        self._graph, self._features, self._weights = graph, features, weights
        self._disk, self._ranges, self._own = disk, ranges, own
        self._known: dict[str, StreamedConstant] = {}

    def of(self, program: Program) -> dict[str, StreamedConstant]:
        """By name."""
        found = recipes(program.cut)
        if not all(recipe in self._known for recipe in found):
            kind = constant_type(program, self._features.dtype)
            made = _Folding(self._graph, self._features, self._weights, self._disk, program.cut, self._own)
            for recipe, node in zip(found, program.cut.constants, strict=True):
                if recipe not in self._known:
                    self._known[recipe] = self._constant(made, node, kind)
            made.close()
        return {name: self._known[recipe] for name, recipe in zip(program.constants, found, strict=True)}

    def _constant(self, made: "_Folding", node: fx.Node, kind: torch.dtype) -> StreamedConstant:
        if node is made.cut.recording.features:
            as_stored = self._features.as_stored and kind == self._features.dtype and self._own is None
            return self._features.whole() if as_stored else StreamedFeatures(self._features, kind, self._own)
        shape = row_shape(node)
        assert shape is not None
        gaps = is_gather(node) and kind == self._features.dtype
        table = made.gathered(node) if gaps else made.written(node, kind)
        return RowsOnDisk(RowStream(table, self._ranges), shape, kind, gaps=gaps)


class _Folding:
    """The rows that one program's constants are made of; what no constant keeps is gone when it is closed."""

    def __init__(
        self,
        graph: Graph,
        features: FeatureRows,
        weights: Mapping[str, Tensor],
        disk: DiskShare,
        cut: Cut,
        own: Ids | None,
    ) -> None:
        self._own, self._rows = own, graph.num_vertices if own is None else len(own)
        self.cut, self._graph, self._features, self._disk = cut, graph, features, disk
        self._weights = {node: weights[name] for name, node in cut.recording.weights.items()}
        self._gathered: dict[fx.Node, DiskTable] = {}
        self._kept: set[fx.Node] = set()
        self._kind = np.dtype(sum_type(features.dtype))

    def gathered(self, node: fx.Node) -> DiskTable:
        """The rows of a gather, to be kept."""
        self._kept.add(node)
        return self._gather(node)

    def written(self, node: fx.Node, dtype: torch.dtype) -> DiskTable:
        """The rows of any node, in a type."""
        stored = np.dtype(np.uint16) if dtype == torch.bfloat16 else self._kind
        table = DiskTable(self._disk.scratch, self._rows, _width(node), stored)
        for first, last in self._blocks(table):
            features = (
                self._features.block(first, last)
                if self._own is None
                else self._features.of(self._own[first:last])
            )
            rows = self._block(node, first, last, features).reshape(last - first, -1).to(dtype)
            values = rows.view(torch.uint16) if dtype == torch.bfloat16 else rows
            buffer = self._disk.writer.buffer(table, first, last - first)
            buffer[:, : table.columns] = values.numpy()
            buffer[:, table.columns :] = 0
            self._disk.writer.put(table, first, buffer)
        self._disk.writer.flush()
        return table

    def close(self) -> None:
        """Give the space of what is not kept back."""
        for node, table in self._gathered.items():
            if node not in self._kept:
                table.close()

    def _block(self, node: fx.Node, first: int, last: int, features: Tensor) -> Tensor:
        """Some rows of a node, of rows on disk and of their features."""
        known: dict[fx.Node, Any] = dict(self._weights)
        known[self.cut.recording.features] = features
        for each in _made_of(node):
            if is_gather(each):
                table = self._gather(each)
                rows = table.read(first, last, lent_buffer(table.buffer_bytes(last - first)))
                known[each] = torch.from_numpy(rows)[:, : table.columns]
        with torch.no_grad():
            found: Tensor = evaluate(node, known, last - first)
        return found

    def _gather(self, node: fx.Node) -> DiskTable:
        """The rows of a gather; made once."""
        if node not in self._gathered:
            (source,) = (each for each in node.all_input_nodes if is_row(each))
            for each in _made_of(source):  # before threads read
                if is_gather(each):
                    self._gather(each)
            gather = self.cut.recording.sites[_site(node)].gather
            assert isinstance(gather, Sum)
            self._gathered[node] = self._summed(gather, source)
        return self._gathered[node]

    def _summed(self, gather: Sum, source: fx.Node) -> DiskTable:
        graph, edges, cut, width = self._graph, self._graph.in_edges, self._disk.cut, _width(source)
        scaling = gather.scaling(graph, self._features.dtype)
        stored = storage(self._kind, gather.precision)
        sources = MadeRows(graph.num_vertices, width, stored, partial(self._pack, source, scaling.pre))
        counted = edges.weights if gather.weighted else None
        weights = None if counted is None else counted.astype(self._kind, copy=False)
        long_rows, whole = hub_rows(edges.indptr), (edges.indptr, edges.indices)
        if self._own is not None:
            long_rows = long_rows[np.isin(long_rows, self._own)]
        hubs = cut_hubs(long_rows, whole, self_loops=scaling.self_weight is None)
        groups = equal_ranges(graph.num_vertices, cut.constants)
        partitions = equal_ranges(graph.num_vertices, cut.constant_partitions)
        buckets = None
        if cut.buckets:
            allocate = partial(mapped_array, cut.directory)
            left = self._own, long_rows
            buckets = EdgeBuckets.of(edges, weights, left, groups, partitions, allocate)
        sums = GroupSums(
            sources,
            edges,
            weights,
            HubEdges(hubs, long_rows, edges.indices, weights),
            scaling.self_weight,
            scaling.post,
            self._own,
            width,
            self._kind,
            cut.constant_partitions,
            buckets,
        )
        table = DiskTable(self._disk.scratch, self._rows, width, self._kind)
        order = [*range(len(partitions))] * len(groups)
        with PartitionReader([sources], partitions, order, SLOTS) as reader:
            for first, last in groups:
                self._write(table, first, last, sums(first, last, reader))
        self._disk.writer.flush()
        return table

    def _pack(self, source: fx.Node, pre: Any, first: int, last: int, table: Table) -> None:
        """Put some rows of what a gather reads into a table, times their factors."""
        self._features.read_soon(first, last)
        for low, high in self._blocks_within(first, last, table.strides[0]):
            values = as_rows(self._block(source, low, high, self._features.block(low, high)))
            factors = None if pre is None else pre[low:high]
            pack_range(values, factors, table[low - first : high - first], None, 0)

    def _write(self, table: DiskTable, first: int, last: int, rows: Table) -> None:
        """Write those of the rows of vertices first:last that are the server's."""
        begin, end = (
            (first, last) if self._own is None else np.searchsorted(self._own, (first, last)).tolist()
        )
        for low, high in self._blocks_within(begin, end, table.row_bytes):
            buffer = self._disk.writer.buffer(table, low, high - low)
            picked = slice(low - first, high - first) if self._own is None else self._own[low:high] - first
            buffer[:] = rows[picked]
            self._disk.writer.put(table, low, buffer)

    def _blocks(self, table: DiskTable) -> Iterator[tuple[int, int]]:
        return self._blocks_within(0, table.rows, table.row_bytes)

    def _blocks_within(self, first: int, last: int, row_bytes: int) -> Iterator[tuple[int, int]]:
        rows = max(1, _AT_ONCE // row_bytes)
        return ((low, min(low + rows, last)) for low in range(first, last, rows))


def _width(node: fx.Node) -> int:
    shape = row_shape(node)
    assert shape is not None
    return int(np.prod(shape))

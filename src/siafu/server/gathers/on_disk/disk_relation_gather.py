"""DiskRelationGather: RelationSum where the rows that edges read, and the gradients, are on disk."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.storage.mapped import mapped_array
from siafu.graph.csr import Csr
from siafu.kernels import (
    HubEdges,
    Table,
    TypeRuns,
    pack_range,
    relation_outer_range,
    relation_products_range,
    type_runs,
    typed_edges,
    window,
    zero_table,
)
from siafu.nn.gathers.relation_sum import RelationSum, shares_of, stacked
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges, Walk
from siafu.server.gathers.local_gather import (
    GatherGradients,
    LocalGather,
    Mask,
    Weights,
    checked,
    sum_type,
    view,
)
from siafu.server.gathers.on_disk.group_sums import GroupSums, group_buffer
from siafu.server.gathers.relation_weights import RelationWeights
from siafu.server.memory.disk_share import DiskShare, equal_ranges
from siafu.tables import GhostedTable, TargetGroups, lent_buffer

_ROWS_AT_ONCE = 1 << 14  # gradients of own rows that a thread reads at a time

# With their optional arguments in lists, they cannot be typed.
_products: Any = relation_products_range
_outer: Any = relation_outer_range

Ids = NDArray[np.int64]


class _Sums(NamedTuple):
    """Sums of one direction, one for each run of edges of a row and a type.

    runs:   of the direction
    groups: make the sums; they are cut where rows begin
    """

    runs: TypeRuns
    groups: TargetGroups


class DiskRelationGather(LocalGather):
    """`RelationGather` with its tables on disk, equal to it in every bit.

    A row's sum over its edges of one type is complete when all partitions of the sources were there, so a group has a sum for
    each row and type. They are multiplied with the matrices by the thread that asks for the rows, in the order of one walk. Back,
    the sums of the forward gather are made once more: the gradients of the matrices are made of them.
    """

    def __init__(
        self,
        gather: RelationSum,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        disk: DiskShare,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        gather.check(server.graph)
        self._gather, self._width, self._disk, self._training = gather, width, disk, training
        self._kind, walks = np.dtype(sum_type(dtype)), self._walks
        stored = storage(self._kind, gather.precision)
        self._out = self._tables.result("sums", gather.out_channels, self._kind)
        self._rows = self._sources(disk, walks.forward, width, stored)
        self.forward_on_disk = [self._rows]
        self._forward = self._sums(self._rows, width, walks.forward, "forward", self.needed)
        if training:
            self._back = self._tables.result("of rows", width, self._kind)
            self._gradients = self._sources(disk, walks.backward, gather.out_channels, stored)
            self.backward_on_disk = [self._gradients]
            self._backward = self._sums(
                self._gradients, gather.out_channels, walks.backward, "backward", None
            )
            self._again = self._sums(self._rows, width, walks.forward, "forward", self.needed)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        rows = self._disk.writer.buffer(self._rows, first, last - first)
        pack_range(checked(x, last - first, self._width), None, rows, None, 0)
        self._disk.writer.put(self._rows, first, rows)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        out, columns = self._out.begin(first, last), self._gather.out_channels
        matrices = stacked(self._learnt.matrices(weights), self._kind, turned=False)
        runs = self._forward.runs
        for low, high, sums in _by_rows(self._forward, first, last):
            _products(
                runs.rows,
                runs.types,
                sums,
                self._width,
                matrices,
                out,
                self.needed,
                *self._walks.span(low, high),
            )
        return view(out, first, last, columns)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        picked = None if self.needed is None else self.needed[begin:end] - first
        values = checked(gradient, end - begin, self._gather.out_channels)
        made = self._disk.writer.buffer if picked is None else self._disk.writer.zeros
        rows = made(self._gradients, first, last - first)
        pack_range(values, None, rows, picked, 0)
        self._disk.writer.put(self._gradients, first, rows)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        back, columns = self._back.begin(first, last), self._gather.out_channels
        turned = stacked(self._learnt.matrices(weights), self._kind, turned=True)
        runs = self._backward.runs
        for low, high, sums in _by_rows(self._backward, first, last):
            _products(runs.rows, runs.types, sums, columns, turned, back, None, low, high)
        of_matrices = self._of_matrices(first, last)
        return GatherGradients(
            (view(back, first, last, self._width),), self._learnt.gradients(of_matrices, weights)
        )

    def begin_anew(self) -> None:
        self._disk.writer.flush()
        for each in (self._forward, self._backward, self._again) if self._training else (self._forward,):
            each.groups.begin_anew()

    @property
    def _learnt(self) -> RelationWeights:
        return RelationWeights(self._gather, self.weight_names, self.learnt)

    def _of_matrices(self, first: int, last: int) -> torch.Tensor:
        """The matrices' gradients that rows first:last give, row after row."""
        runs, columns = self._again.runs, self._gather.out_channels
        found = zero_table(self._gather.relations * self._width, columns, self._kind)
        for low, high, sums in _by_rows(self._again, first, last):
            for begin in range(low, high, _ROWS_AT_ONCE):
                end = min(begin + _ROWS_AT_ONCE, high)
                buffer = lent_buffer(self._gradients.buffer_bytes(end - begin))
                with self._gradients.waiting():
                    gradient = self._gradients.read(begin, end, buffer)
                span = self._walks.span(begin, end)
                gradient = window(gradient, begin, end)
                _outer(runs.rows, runs.types, sums, self._width, gradient, found, self.needed, *span)
        return torch.from_numpy(np.ascontiguousarray(found[:, :columns]))

    def _sums(
        self, table: GhostedTable, columns: int, walk: Walk, direction: str, needed: Ids | None
    ) -> _Sums:
        runs, indices, scales = self._typed(walk, direction)
        cut = self._disk.cut
        sums = GroupSums(
            table,
            Csr(runs.edges, indices, None),
            scales,
            HubEdges([], np.zeros(0, np.int64), indices, None),
            None,
            None,
            None if needed is None else _runs_of(runs, needed),
            columns,
            self._kind,
            cut.partitions,
        )
        groups = TargetGroups(
            [table],
            _cut_at_rows(runs, cut.groups),
            equal_ranges(walk.columns, cut.partitions),
            self._disk.cut.slots,
            sums,
            group_buffer(0, columns, self._kind),
            self._disk.writer.flush,
        )
        return _Sums(runs, groups)

    def _typed(self, walk: Walk, direction: str) -> tuple[TypeRuns, NDArray[Any], NDArray[Any] | None]:
        """Runs, and the sources and factors of their edges, which are in mapped scratch files."""
        graph, (indptr, indices, _) = self.server.graph, walk.edges
        assert graph.edge_type is not None
        key = direction, self._gather.mean, self._kind.str, "runs"
        if key not in walk.typed:
            shares = shares_of(graph, self._kind) if self._gather.mean else None
            allocate = partial(mapped_array, self._disk.cut.directory)
            numbers = walk.numbers(direction)
            edges = typed_edges(indptr, indices, numbers, graph.edge_type, shares, allocate)
            walk.typed[key] = type_runs(edges), edges.indices, edges.scales
        found: tuple[TypeRuns, NDArray[Any], NDArray[Any] | None] = walk.typed[key]
        return found


def _by_rows(sums: _Sums, first: int, last: int) -> Iterator[tuple[int, int, Table]]:
    """Rows first:last in ranges that groups cut, with the sums of their runs, numbered as all runs are."""
    starts, row = sums.runs.rows, first
    for run, part in sums.groups.parts(int(starts[first]), int(starts[last])):
        after = run + len(part)
        # Rows without edges go with those before them.
        end = min(last, int(np.searchsorted(starts, after, side="right")) - 1)
        yield row, end, window(part, run, after)
        row = end
    if row < last:  # none has edges
        yield row, last, sums.groups.take(0, 0)


def _runs_of(runs: TypeRuns, rows: Ids) -> Ids:
    """The runs of some rows."""
    wanted = np.zeros(len(runs.rows) - 1, np.bool_)
    wanted[rows] = True
    return np.flatnonzero(np.repeat(wanted, np.diff(runs.rows)))


def _cut_at_rows(runs: TypeRuns, count: int) -> list[tuple[int, int]]:
    """Up to so many ranges of runs, about equally long; a row's runs are all in one."""
    total = int(runs.rows[-1])
    wished = [total * k // count for k in range(1, count)]
    inside = runs.rows[np.searchsorted(runs.rows, wished)]
    bounds = np.unique([0, *inside.tolist(), total]).tolist()
    return list(itertools.pairwise(bounds)) or [(0, 0)]

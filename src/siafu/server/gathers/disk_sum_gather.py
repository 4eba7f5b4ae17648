"""DiskSumGather: Sum, Mean and GcnSum where the rows that edges read are on disk."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.threads import run_all, thread_count
from siafu.kernels import (
    Table,
    add_bucket,
    equal_chunks,
    finish_sums,
    first_edges,
    pack_range,
    start_sums,
)
from siafu.nn.gather import Sum
from siafu.nn.tensors import storage
from siafu.server.disk_share import SLOTS, DiskShare, equal_ranges
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
from siafu.tables import DiskTable, MemoryTable, PartitionReader, TargetGroups, page_buffer

_CHUNKS_PER_THREAD = 4
_ROWS_AT_ONCE = 1 << 16  # own rows that are read at a time, where there are self-loops

Ids = NDArray[np.int64]


class DiskSumGather(LocalGather):
    """`SumGather` with its tables on disk, equal to it in every bit. Its server is the only one: rows go to no other.

    `forward` and `backward` make the sums of a group of rows together, with all threads, and give what is asked for.
    """

    def __init__(
        self,
        gather: Sum,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        disk: DiskShare,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._width, self._disk, self._weighted = width, disk, gather.weighted
        scaling = gather.scaling(server.graph, dtype)
        self._pre, self._post = server.own_part(scaling.pre), server.own_part(scaling.post)
        self._self_weight = server.own_part(scaling.self_weight)
        self._kind = np.dtype(sum_type(dtype))
        stored = storage(self._kind, gather.precision)
        walks = self._walks
        self._rows = DiskTable(disk.scratch, walks.forward.columns, width, stored)
        self._forward = self._groups(self._rows, walks.forward, self._post, self.needed)
        if training:
            self._gradients = DiskTable(disk.scratch, walks.backward.columns, width, stored)
            self._backward = self._groups(self._gradients, walks.backward, self._pre, None)

    @property
    def waited(self) -> float:
        """Seconds for which gathers waited for the disk, forth."""
        return self._forward.waited

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        self._write(self._rows, first, last, checked(x, last - first, self._width), self._pre, None)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        return view(self._forward.take(first, last), 0, last - first, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        picked = None if self.needed is None else self.needed[begin:end] - first
        values = checked(gradient, end - begin, self._width)
        self._write(self._gradients, first, last, values, self._post, picked)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        return GatherGradients((view(self._backward.take(first, last), 0, last - first, self._width),), {})

    def begin_anew(self) -> None:
        super().begin_anew()
        self._disk.writer.flush()
        self._forward.begin_anew()
        if hasattr(self, "_gradients"):
            self._backward.begin_anew()

    def _write(
        self,
        table: DiskTable,
        first: int,
        last: int,
        values: NDArray[Any],
        scale: NDArray[Any] | None,
        picked: Ids | None,
    ) -> None:
        """Write rows first:last behind; those that are not picked are zero."""
        rows = self._disk.writer.buffer(table, first, last - first)
        pack_range(values, None if scale is None else scale[first:last], rows, picked, 0)
        self._disk.writer.put(table, first, rows)

    def _groups(
        self, table: DiskTable, walk: Walk, scale: NDArray[Any] | None, needed: Ids | None
    ) -> TargetGroups:
        if self._weighted:
            walk.weights(self._kind)  # made now, by one thread
        return TargetGroups(
            [table],
            equal_ranges(self.server.own, self._disk.cut.groups),
            equal_ranges(walk.columns, self._disk.cut.partitions),
            SLOTS,
            partial(self._sums, table, walk, scale, needed),
            self._disk.writer.flush,
        )

    def _sums(
        self,
        table: DiskTable,
        walk: Walk,
        scale: NDArray[Any] | None,
        needed: Ids | None,
        first: int,
        last: int,
        reader: PartitionReader,
    ) -> Table:
        """The sums of rows first:last: what partitions of the sources give, one after the other, on every core."""
        edges, count = walk.edges, last - first
        indptr = edges.indptr[first : last + 1]
        inside = None if needed is None else needed[(needed >= first) & (needed < last)] - first
        at = first_edges(indptr, inside)
        weights = walk.weights(self._kind) if self._weighted else None
        sums = _buffer(count, self._width, self._kind)
        self._start(table, sums, first)
        chunks = equal_chunks(indptr, thread_count() * _CHUNKS_PER_THREAD)
        own = -1 if self._self_weight is None else first
        for low, high in equal_ranges(walk.columns, self._disk.cut.partitions):
            with reader.next() as (_, (rows,)):
                add = partial(add_bucket, indptr, edges.indices, weights, rows, low, high, own, at, sums)
                run_all(lambda chunk, add=add: add(*chunk), chunks)  # type: ignore[misc]
        factors = None if scale is None else scale[first:last]
        run_all(lambda chunk: finish_sums(factors, sums, *chunk), chunks)
        return sums

    def _start(self, table: DiskTable, sums: Table, first: int) -> None:
        """Begin sums with self-loops, of the rows' own, or with zeros, which new memory has."""
        if self._self_weight is None:
            return
        buffer = page_buffer(table.buffer_bytes(min(_ROWS_AT_ONCE, len(sums))))
        for lo in range(0, len(sums), _ROWS_AT_ONCE):
            hi = min(lo + _ROWS_AT_ONCE, len(sums))
            rows = table.read(first + lo, first + hi, buffer)
            start_sums(rows, self._self_weight[first + lo : first + hi], sums[lo:hi], 0, hi - lo)


def _buffer(rows: int, columns: int, dtype: np.dtype[Any]) -> Table:
    return MemoryTable(0, columns, dtype).buffer(rows)

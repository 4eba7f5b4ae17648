"""DiskMaxGather: Max where the rows that edges compare, the maxima and their shares are on disk."""

from functools import partial
from typing import Any

import numpy as np
import torch

from siafu.base.threads import PerThread, run_all, thread_count
from siafu.kernels import (
    Table,
    equal_chunks,
    first_edges,
    max_gradient_range,
    maximise_bucket,
    pack_range,
    padded,
    share_out_bucket,
    start_maxima,
    window,
)
from siafu.nn.gathers.gather import Max
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges
from siafu.server.gathers.local_gather import (
    GatherGradients,
    LocalGather,
    Mask,
    Weights,
    checked,
    sum_type,
    view,
)
from siafu.server.gathers.on_disk.group_sums import CHUNKS_PER_THREAD, group_buffer
from siafu.server.memory.disk_share import DiskShare, equal_ranges
from siafu.tables import GhostedTable, PartitionReader, TargetGroups, lent_buffer


class DiskMaxGather(LocalGather):
    """`MaxGather` with its tables on disk, equal to it in every bit.

    A group's maxima, and how many rows reach them, are side by side in one table.
    """

    resends = True

    def __init__(
        self,
        gather: Max,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        disk: DiskShare,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._width, self._columns, self._disk, self._training = width, padded(width), disk, training
        self._kind = np.dtype(sum_type(dtype))
        stored = storage(self._kind, gather.precision)
        self._rows = self._sources(disk, self._walks.forward, width, stored)
        self.forward_on_disk = [self._rows]
        self._forward = self._groups([self._rows], self._maximise)
        self._taken = PerThread()  # what a thread gathered last: gradients are made of it
        if training:
            back = self._walks.backward
            self._sent = [self._sources(disk, back, width, self._kind) for _ in range(2)]
            self.backward_on_disk = self._sent
            self._backward = self._groups(self._sent, self._share_out)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        rows = self._disk.writer.buffer(self._rows, first, last - first)
        pack_range(checked(x, last - first, self._width), None, rows, None, 0)
        self._disk.writer.put(self._rows, first, rows)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        found = self._forward.take(first, last)
        self._taken.values["rows"] = first, last, found
        return view(found, 0, last - first, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        low, high, taken = self._taken.values["rows"]
        maxima, shares = (self._disk.writer.zeros(table, first, last - first) for table in self._sent)
        max_gradient_range(
            checked(gradient, end - begin, self._width),
            window(taken[:, : self._columns], low, high),
            window(taken[:, self._columns :], low, high),
            window(maxima, first, last),
            window(shares, first, last),
            self.needed,
            begin,
        )
        for table, rows in zip(self._sent, (maxima, shares), strict=True):
            self._disk.writer.put(table, first, rows)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        return GatherGradients((view(self._backward.take(first, last), 0, last - first, self._width),), {})

    def begin_anew(self) -> None:
        self._disk.writer.flush()
        self._forward.begin_anew()
        if self._training:
            self._backward.begin_anew()

    def _groups(self, tables: list[GhostedTable], make: Any) -> TargetGroups:
        cut = self._disk.cut
        groups, partitions = (
            equal_ranges(self.server.own, cut.groups),
            equal_ranges(tables[0].rows, cut.partitions),
        )
        empty = group_buffer(0, 2 * self._columns, self._kind)
        return TargetGroups(
            tables, groups, partitions, self._disk.cut.slots, make, empty, self._disk.writer.flush
        )

    def _maximise(self, first: int, last: int, reader: PartitionReader) -> Table:
        """Maxima of rows first:last, and beside them how many rows reach each."""
        walk, needed = self._walks.forward, self.needed
        indptr, indices = walk.edges.indptr[first : last + 1], walk.edges.indices
        inside = None if needed is None else needed[(needed >= first) & (needed < last)] - first
        at = first_edges(indptr, inside)
        made = group_buffer(last - first, 2 * self._columns, self._kind)
        out, ties = made[:, : self._columns], made[:, self._columns :]
        chunks = equal_chunks(indptr, thread_count() * CHUNKS_PER_THREAD)
        run_all(lambda chunk: start_maxima(indptr, out, ties, *chunk), chunks)
        for low, high in equal_ranges(walk.columns, self._disk.cut.partitions):
            with reader.next() as (_, (rows,)):
                add = partial(maximise_bucket, indptr, indices, rows, low, high, at, out, ties)
                run_all(lambda chunk, add=add: add(*chunk), chunks)  # type: ignore[misc]
        return made

    def _share_out(self, first: int, last: int, reader: PartitionReader) -> Table:
        """The gradients of rows first:last: shares of the maxima that they reach."""
        walk = self._walks.backward
        indptr, indices = walk.edges.indptr[first : last + 1], walk.edges.indices
        at, out = first_edges(indptr), group_buffer(last - first, self._width, self._kind)
        own = self._rows.read(first, last, lent_buffer(self._rows.buffer_bytes(last - first)))
        chunks = equal_chunks(indptr, thread_count() * CHUNKS_PER_THREAD)
        for low, high in equal_ranges(walk.columns, self._disk.cut.partitions):
            with reader.next() as (_, (maxima, shares)):
                add = partial(share_out_bucket, indptr, indices, own, maxima, shares, low, high, at, out)
                run_all(lambda chunk, add=add: add(*chunk), chunks)  # type: ignore[misc]
        return out

"""DiskAttentionGather: Softmax where the rows that edges read, and the gradients, are on disk."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.threads import PerThread, run_all, thread_count
from siafu.kernels import (
    LANES,
    AdjointState,
    Attention,
    AttentionState,
    Table,
    attend_adjoint_bucket,
    attend_bucket,
    attention_gradient_range,
    equal_chunks,
    finish_attention,
    pack_heads_range,
    padded,
    row_list,
    window,
)
from siafu.nn.gathers.gather import Softmax
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

_ROWS_AT_ONCE = 1 << 16  # own rows that are read at a time, where there are self-loops

Logits = NDArray[Any]


class DiskAttentionGather(LocalGather):
    """`AttentionGather` with its rows and gradients on disk, equal to it in every bit.

    Logits, denominators and their gradients, a few numbers a head, are in memory: the weights of a block of edges are made of
    all its logits. A group is gathered together with the sums of its edges with positive logits, in one table.
    """

    resends = True

    def __init__(
        self,
        gather: Softmax,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        disk: DiskShare,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        heads = gather.heads
        self._head_width, self._disk, self._training = width // heads, disk, training
        head_columns = -(-self._head_width // LANES) * LANES
        self._how = Attention(heads, head_columns, gather.slope, gather.self_loops)
        self._columns, self._kind = padded(heads * head_columns), np.dtype(sum_type(dtype))
        stored, walks, own = storage(self._kind, gather.precision), self._walks, server.own
        self._target, self._log_sum, self._share = (np.zeros((own, heads), self._kind) for _ in range(3))
        self._source = np.zeros((walks.forward.columns, heads), self._kind)
        self._rows = self._sources(disk, walks.forward, self._columns, stored)
        self.forward_on_disk, self.forward_tables = [self._rows], [self._source]
        self._forward = self._groups(self._rows, walks.forward.columns, self._attend)
        self._taken = PerThread()  # what a thread gathered last: gradients are made of it
        if training:
            self._of_source, self._of_target = (np.zeros((own, heads), self._kind) for _ in range(2))
            self._targets = np.zeros((walks.backward.columns, 3 * heads), self._kind)
            # Nothing comes back along an edge to a row that never sends: its weight is exp(-inf).
            self._targets[:, heads : 2 * heads] = np.inf
            self._gradients = self._sources(disk, walks.backward, self._columns, stored)
            self.backward_on_disk, self.backward_tables = [self._gradients], [self._targets]
            self._backward = self._groups(self._gradients, walks.backward.columns, self._attend_back)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        x, source, target = sent
        heads, count = self._how.heads, last - first
        rows = self._disk.writer.buffer(self._rows, first, count)
        values = checked(x, count, heads * self._head_width)
        pack_heads_range(values, rows, heads, self._how.head_columns, None, 0)
        self._disk.writer.put(self._rows, first, rows)
        self._source[first:last] = checked(source, count, heads)
        self._target[first:last] = checked(target, count, heads)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        self._how = self._how._replace(dropout=dropout, seed=seed)
        found = self._forward.take(first, last)
        self._taken.values["rows"] = first, last, found
        return self._joined(found[:, : self._columns])

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        low, high, taken = self._taken.values["rows"]
        packed = self._disk.writer.zeros(self._gradients, first, last - first)
        attention_gradient_range(
            checked(gradient, end - begin, self._how.heads * self._head_width),
            self._how.heads,
            self._how.head_columns,
            self._how.slope,
            self._target,
            window(taken[:, : self._columns], low, high),
            self._log_sum,
            window(taken[:, self._columns : 2 * self._columns], low, high),
            self._share,
            window(packed, first, last),
            self._targets,
            self._of_target,
            row_list(self.needed),
            begin,
        )
        self._disk.writer.put(self._gradients, first, packed)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        self._how = self._how._replace(dropout=dropout, seed=seed)
        rows = self._joined(self._backward.take(first, last))
        logits = (torch.from_numpy(of[first:last]) for of in (self._of_source, self._of_target))
        return GatherGradients((rows, *logits), {})

    def begin_anew(self) -> None:
        self._disk.writer.flush()
        self._forward.begin_anew()
        if self._training:
            self._backward.begin_anew()

    def _joined(self, rows: Table) -> torch.Tensor:
        """Gathered rows with no gap between heads."""
        heads, head_columns, width = self._how.heads, self._how.head_columns, self._head_width
        if heads == 1 or head_columns == width:
            return view(rows, 0, len(rows), heads * width)
        found = view(rows, 0, len(rows), heads * head_columns)
        return found.reshape(len(rows), heads, head_columns)[:, :, :width].flatten(1)

    def _groups(self, table: GhostedTable, columns: int, make: Any) -> TargetGroups:
        cut = self._disk.cut
        groups, partitions = (
            equal_ranges(self.server.own, cut.groups),
            equal_ranges(columns, cut.partitions),
        )
        empty = group_buffer(0, 2 * self._columns, self._kind)
        return TargetGroups(
            [table], groups, partitions, self._disk.cut.slots, make, empty, self._disk.writer.flush
        )

    def _attend(self, first: int, last: int, reader: PartitionReader) -> Table:
        """Sums gathered for rows first:last, and beside them the sums over edges with positive logits."""
        walk, how, needed = self._walks.forward, self._how, self.needed
        indptr, heads = walk.edges.indptr[first : last + 1], self._how.heads
        inside = None if needed is None else needed[(needed >= first) & (needed < last)] - first
        state = AttentionState.first(indptr, heads, self._kind, inside)
        made = group_buffer(last - first, (2 if self._training else 1) * self._columns, self._kind)
        out = made[:, : self._columns]
        positive = made[:, self._columns : 2 * self._columns] if self._training else None
        share = self._share[first:last] if self._training else None
        if share is not None:
            share[:] = 0

        def add(rows: Table, low: int, high: int, chunk: tuple[int, int], *, own: bool = False) -> None:
            attend_bucket(
                indptr,
                walk.edges.indices,
                rows,
                low,
                high,
                first,
                own,
                self._source,
                self._target[first:last],
                *how.arguments,
                row_list(walk.drawn),
                *state,
                out,
                positive,
                share,
                *chunk,
            )

        chunks = equal_chunks(indptr, thread_count() * CHUNKS_PER_THREAD)
        if how.self_loops:
            self._over_own(self._rows, first, last, add)
        self._over_partitions(reader, walk.columns, chunks, add)
        run_all(
            lambda chunk: finish_attention(
                heads,
                how.head_columns,
                state.highest,
                state.total,
                out,
                self._log_sum[first:last],
                positive,
                share,
                *chunk,
            ),
            chunks,
        )
        return made

    def _attend_back(self, first: int, last: int, reader: PartitionReader) -> Table:
        """The gradients of rows first:last, and of their logits as sources."""
        walk, how = self._walks.backward, self._how
        indptr = walk.edges.indptr[first : last + 1]
        state = AdjointState.first(indptr, how.heads, self._kind)
        out = group_buffer(last - first, self._columns, self._kind)
        own_rows = self._rows.read(first, last, lent_buffer(self._rows.buffer_bytes(last - first)))
        of_source = self._of_source[first:last]
        of_source[:] = 0

        def add(gradient: Table, low: int, high: int, chunk: tuple[int, int], *, own: bool = False) -> None:
            attend_adjoint_bucket(
                indptr,
                walk.edges.indices,
                gradient,
                self._targets[low:high],
                low,
                high,
                first,
                own,
                own_rows,
                self._source[first:last],
                *how.arguments,
                row_list(walk.drawn),
                *state,
                out,
                of_source,
                *chunk,
            )

        chunks = equal_chunks(indptr, thread_count() * CHUNKS_PER_THREAD)
        if how.self_loops:
            self._over_own(self._gradients, first, last, add)
        self._over_partitions(reader, walk.columns, chunks, add)
        return out

    def _over_own(self, table: GhostedTable, first: int, last: int, add: Any) -> None:
        """Self-loops come first, of the rows' own."""
        buffer = lent_buffer(table.buffer_bytes(min(_ROWS_AT_ONCE, last - first)))
        for low in range(first, last, _ROWS_AT_ONCE):
            high = min(low + _ROWS_AT_ONCE, last)
            add(table.read(low, high, buffer), low, high, (low - first, high - first), own=True)

    def _over_partitions(
        self, reader: PartitionReader, columns: int, chunks: list[tuple[int, int]], add: Any
    ) -> None:
        for low, high in equal_ranges(columns, self._disk.cut.partitions):
            with reader.next() as (_, (rows,)):
                run_all(partial(add, rows, low, high), chunks)

"""DiskSumGather: Sum, Mean and GcnSum where the rows that edges read are on disk."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import pack_range
from siafu.nn.gathers.gather import Sum
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
from siafu.server.memory.disk_share import DiskShare, equal_ranges
from siafu.tables import GhostedTable, TargetGroups

Ids = NDArray[np.int64]


class DiskSumGather(LocalGather):
    """`SumGather` with its tables on disk, equal to it in every bit.

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
        self._rows = self._sources(disk, walks.forward, width, stored)
        self.forward_on_disk = [self._rows]
        self._forward = self._groups(self._rows, walks.forward, self._post, self.needed)
        if training:
            self._gradients = self._sources(disk, walks.backward, width, stored)
            self.backward_on_disk = [self._gradients]
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
        table: GhostedTable,
        first: int,
        last: int,
        values: NDArray[Any],
        scale: NDArray[Any] | None,
        picked: Ids | None,
    ) -> None:
        """Write rows first:last behind; those that are not picked are zero."""
        writer = self._disk.writer
        made = writer.buffer if picked is None else writer.zeros
        rows = made(table, first, last - first)
        pack_range(values, None if scale is None else scale[first:last], rows, picked, 0)
        writer.put(table, first, rows)

    def _groups(
        self, table: GhostedTable, walk: Walk, scale: NDArray[Any] | None, needed: Ids | None
    ) -> TargetGroups:
        cut = self._disk.cut
        weighed = self._kind if self._weighted else None
        hubs = walk.hubs(weighed, self_loops=self._self_weight is None)
        groups = equal_ranges(self.server.own, cut.groups)
        partitions = equal_ranges(walk.columns, cut.partitions)
        sums = GroupSums(
            table,
            walk.edges,
            walk.weights(self._kind) if self._weighted else None,
            hubs,
            self._self_weight,
            scale,
            needed,
            self._width,
            self._kind,
            cut.partitions,
            walk.in_buckets(groups, partitions, weighed, hubs, cut.directory) if cut.buckets else None,
        )
        empty = group_buffer(0, self._width, self._kind)
        return TargetGroups(
            [table], groups, partitions, self._disk.cut.slots, sums, empty, self._disk.writer.flush
        )

"""RelationSum on a server: how it runs, what it costs and holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from siafu.kernels import (
    TypedEdges,
    pack_range,
    relation_range,
    relation_weights_range,
    typed_edges,
    zero_table,
)
from siafu.nn.gathers.relation_sum import RelationSum, shares_of, stacked
from siafu.nn.tensors import storage
from siafu.server.costs.held_array import Grouped, HeldArray
from siafu.server.edges import ServerEdges, Walk
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.gather_tables import ResultTable
from siafu.server.gathers.local_gather import (
    GatherGradients,
    LocalGather,
    Mask,
    Weights,
    checked,
    stored_size,
    sum_type,
    view,
)
from siafu.server.gathers.on_disk.disk_relation_gather import DiskRelationGather
from siafu.server.gathers.relation_weights import RelationWeights

# With their optional arguments in lists, they cannot be typed.
_gather: Any = relation_range
_gather_weights: Any = relation_weights_range


class RelationGather(LocalGather):
    """Sums by type, each times the type's matrix. What goes back does so times the matrices turned."""

    def __init__(
        self,
        gather: RelationSum,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        gather.check(server.graph)
        self._gather, self._width, self._dtype = gather, width, dtype
        kind, tables, walks = np.dtype(sum_type(dtype)), self._tables, self._walks
        self._kind, stored = kind, storage(kind, gather.precision)
        self._out = tables.result("sums", gather.out_channels, kind)
        self.forward_tables = [tables.source("rows", walks.forward.columns, width, stored)]
        self._forward = self._typed(walks.forward, "forward")
        if training:
            self._back = tables.result("of rows", width, kind)
            columns = walks.backward.columns
            self.backward_tables = [tables.source("gradients", columns, gather.out_channels, stored)]
            self._backward = self._typed(walks.backward, "backward")

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), None, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        out, (rows,) = self._out.begin(first, last), self.forward_tables
        matrices = stacked(self._learnt.matrices(weights), self._kind, turned=False)
        span = self._walks.span(first, last)
        _gather(*self._forward, rows, self._width, matrices, out, self.needed, *span)
        return view(out, first, last, self._gather.out_channels)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        values = checked(gradient, end - begin, self._gather.out_channels)
        pack_range(values, None, self.backward_tables[0], self.needed, begin)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        (gradient,), back = self.backward_tables, self._back.begin(first, last)
        turned = stacked(self._learnt.matrices(weights), self._kind, turned=True)
        _gather(*self._backward, gradient, self._gather.out_channels, turned, back, None, first, last)
        found = zero_table(self._gather.relations * self._width, self._gather.out_channels, self._kind)
        (rows,), span = self.forward_tables, self._walks.span(first, last)
        _gather_weights(*self._forward, rows, self._width, gradient, found, self.needed, *span)
        of_matrices = torch.from_numpy(np.ascontiguousarray(found[:, : self._gather.out_channels]))
        of_rows = view(back, first, last, self._width)
        return GatherGradients((of_rows,), self._learnt.gradients(of_matrices, weights))

    @property
    def _learnt(self) -> RelationWeights:
        return RelationWeights(self._gather, self.weight_names, self.learnt)

    def _typed(self, walk: Walk, direction: str) -> TypedEdges:
        graph, (indptr, indices, _) = self.server.graph, walk.edges
        assert graph.edge_type is not None
        shares = shares_of(graph, self._kind) if self._gather.mean else None
        key = direction, self._gather.mean, self._kind.str
        if key not in walk.typed:
            numbers = walk.numbers(direction)
            walk.typed[key] = typed_edges(indptr, indices, numbers, graph.edge_type, shares)
        found: TypedEdges = walk.typed[key]
        return found

    def _results(self) -> list[ResultTable]:
        return [self._out, self._back] if self.backward_tables else [self._out]


class RelationBehaviour(GatherBehaviour[RelationSum]):
    """RelationSum."""

    gather = RelationSum
    in_memory = RelationGather
    on_disk = DiskRelationGather
    blocked = False

    def flops(self, gather: RelationSum, width: int, *, back: bool, weighted: bool) -> int:
        # Of an edge that is the only one of its type at its vertex; width: of what comes out, near that of what goes in.
        return (4 if back else 2) * width * width + 2 * width

    def held(
        self, gather: RelationSum, width: int, itemsize: int, *, training: bool
    ) -> tuple[HeldArray, ...]:
        rows = HeldArray(
            "rows",
            "what edges gather",
            "backward",
            width,
            stored_size(gather, itemsize),
            "forward",
            "all",
            on_disk="source",
            grouped=Grouped(types=width),
            reads_back=1,
        )
        sums = HeldArray(
            "sums", "gathered rows", "backward", gather.out_channels, itemsize, "own", "needed", passes=True
        )
        if not training:
            return rows, sums
        return (
            rows,
            sums,
            HeldArray(
                "of rows", "gradients", "backward", width, itemsize, "own", backward="all", passes=True
            ),
            replace(
                rows,
                name="gradients",
                purpose="what edges gather back",
                until="gather",
                columns=gather.out_channels,
                rows="backward",
                forward=None,
                backward="needed",
                grouped=Grouped(types=gather.out_channels),
                beside=True,
                reads_back=0,
            ),
        )

"""Max on a server: how it runs, what it costs and holds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import (
    Table,
    greatest_messages,
    max_adjoint_range,
    max_gradient_range,
    max_range,
    pack_range,
    share_out,
)
from siafu.nn.gathers.gather import Max
from siafu.nn.tensors import storage
from siafu.program.program import GatherStep
from siafu.server.costs.held_array import Grouped, HeldArray
from siafu.server.edges import ServerEdges
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.early_gather import EarlyMax, EarlyMaxAdjoint
from siafu.server.gathers.edgewise.reduction import Reduction, RowIds
from siafu.server.gathers.gather_tables import HeldTables, ResultTable
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
from siafu.server.gathers.on_disk.disk_max_gather import DiskMaxGather


class MaxGather(LocalGather):
    """The greatest of each column. Back travel the maxima, and what each row that reaches one gets."""

    resends = True

    def __init__(
        self,
        gather: Max,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._width = width
        kind, tables = np.dtype(sum_type(dtype)), self._tables
        self._out, self._ties = (tables.result(name, width, kind) for name in ("maxima", "ties"))
        self._back = self._out
        stored = storage(kind, gather.precision)
        self.forward_tables = [tables.source("rows", self._walks.forward.columns, width, stored)]
        if training:
            # The maxima have been sent by then.
            self._back = tables.result("gradients", width, kind, over=self._out)
            columns = self._walks.backward.columns
            self.backward_tables = [
                tables.source(name, columns, width, kind) for name in ("maxima sent", "shares")
            ]
        self.gathered, self.returned = (self._out, self._ties) if training else (self._out,), self._back
        if tables.results_stay:
            (rows,), walks = self.forward_tables, self._walks
            self.early_forward = EarlyMax(
                walks.forward, rows, self._out.table(), self._ties.table(), self.needed
            )
            if training:
                maxima, shares = self.backward_tables
                self.early_backward = EarlyMaxAdjoint(
                    walks.backward, rows, maxima, shares, self._back.table()
                )

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), None, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        indptr, indices, _ = self._walks.forward.edges
        (rows,) = self.forward_tables
        out, ties = self._out.begin(first, last), self._ties.begin(first, last)
        span = self._walks.span(first, last)
        if self.early_forward is None or not self.early_forward.end(first, last):
            max_range(indptr, indices, rows, out, ties, self.needed, *span)
        return view(out, first, last, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        maxima, shares = self.backward_tables
        max_gradient_range(
            checked(gradient, end - begin, self._width),
            self._out.table(),
            self._ties.table(),
            maxima,
            shares,
            self.needed,
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        indptr, indices, _ = self._walks.backward.edges
        (rows,) = self.forward_tables
        maxima, shares = self.backward_tables
        out = self._back.begin(first, last)
        if self.early_backward is None or not self.early_backward.end(first, last):
            max_adjoint_range(indptr, indices, rows, maxima, shares, out, first, last)
        return GatherGradients((view(out, first, last, self._width),), {})

    def _results(self) -> list[ResultTable]:
        return [self._out, self._ties, self._back]


class MaxOfMessages(Reduction):
    """The greatest message of each column. Back travel the maxima besides."""

    tables = 1

    def __init__(self, server: ServerEdges, width: int, dtype: torch.dtype) -> None:
        self._kind = np.dtype(sum_type(dtype))
        self._ties = (server.tables or HeldTables(server.own)).result("ties", width, self._kind)
        self.ties = self._ties
        self.results = (self._ties,)

    def begin(self, first: int, last: int) -> None:
        self._ties.begin(first, last)

    def reduce(
        self,
        indptr: NDArray[np.int64],
        picked: RowIds | None,
        first: int,
        last: int,
        messages: NDArray[Any],
        weight: NDArray[Any] | None,
        out: Table,
    ) -> None:
        greatest_messages(indptr, picked, first, last, messages, out, self._ties.table())

    def send_back(
        self,
        gradient: NDArray[Any],
        out: ResultTable,
        tables: Sequence[Table],
        needed: RowIds | None,
        first: int,
    ) -> None:
        shares, maxima = tables
        max_gradient_range(gradient, out.table(), self._ties.table(), maxima, shares, needed, first)

    def of_messages(
        self,
        targets: RowIds,
        tables: Sequence[Table],
        weight: NDArray[Any] | None,
        width: int,
        messages: Callable[[], NDArray[Any]],
    ) -> torch.Tensor:
        shares, maxima = tables
        found = np.empty((len(targets), width), self._kind)
        if len(targets):
            share_out(messages(), targets, maxima, shares, found)
        return torch.from_numpy(found)


class MaxBehaviour(GatherBehaviour[Max]):
    """Max."""

    gather = Max
    in_memory = MaxGather
    on_disk = DiskMaxGather
    by_columns = True

    def resends(self, step: GatherStep) -> bool:
        return True

    def held(self, gather: Max, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        stored = stored_size(gather, itemsize)
        arrays = (
            HeldArray(
                "maxima",
                "gathered rows, then gradients",
                "backward",
                width,
                itemsize,
                "own",
                "needed",
                "all",
                passes=True,
            ),
            HeldArray(
                "ties",
                "how many rows reach a maximum",
                "backward",
                width,
                itemsize,
                "own",
                "needed",
                passes=True,
            ),
            # Two tables come back: a group with its own rows, and parts of these, is as long as three.
            HeldArray(
                "rows",
                "what edges compare",
                "backward",
                width,
                stored,
                "forward",
                "all",
                on_disk="source",
                grouped=Grouped(3 * width),
            ),
        )
        if not training:
            return arrays
        back = HeldArray(
            "maxima sent",
            "to be compared again",
            "gather",
            width,
            itemsize,
            "backward",
            backward="needed",
            on_disk="source",
        )
        return (*arrays, back, replace(back, name="shares", purpose="what a row gets that reaches a maximum"))

    def column_bytes(self, gather: Max, itemsize: int, *, made: bool, back: bool, training: bool) -> int:
        """Back go maxima and shares; numbers of ties come with the maxima, if they are wanted."""
        if made != back and (back or training):
            return 2 * itemsize
        return super().column_bytes(gather, itemsize, made=made, back=back, training=training)

    def reduction(self, gather: Max, server: ServerEdges, width: int, dtype: torch.dtype) -> Reduction:
        return MaxOfMessages(server, width, dtype)

    def held_by_reduction(self, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        ties = HeldArray(
            "ties",
            "how many messages reach a maximum",
            "backward",
            width,
            itemsize,
            "own",
            "needed",
            passes=True,
        )
        back = HeldArray(
            "maxima sent",
            "to be compared again",
            "gather",
            width,
            itemsize,
            "backward",
            backward="needed",
            on_disk="source",
            grouped=Grouped(collected=True, through=1),
            beside=True,
        )
        return (ties, back) if training else (ties,)

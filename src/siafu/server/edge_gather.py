"""EdgeGather: a user's edge function and the reduction of its messages, on one server."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.kernels import (
    Table,
    add_messages,
    add_to_rows,
    copy_range,
    edge_ends,
    greatest_messages,
    max_gradient_range,
    pack_range,
    rows_within,
    share_out,
    zero_table,
)
from siafu.nn.gather import Gather, Max, Mean, Sum
from siafu.nn.tensors import as_rows
from siafu.server.edges import ServerEdges, Walk
from siafu.server.local_gather import Gradients, LocalGather, Mask, Weights, checked, sum_type, view

EDGES_AT_ONCE = 1 << 16  # what is made for an edge is held for so many at a time


class EdgeProgram(Protocol):
    """An edge function and its adjoint, on rows of some edges' ends."""

    def messages(self, source: torch.Tensor, target: torch.Tensor, weights: Weights) -> torch.Tensor:
        """[k, C] rows of both ends → [k, D] messages."""

    def gradients(
        self, source: torch.Tensor, target: torch.Tensor, weights: Weights, of_messages: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The gradients of both ends' rows [k, C], and of each parameter over all k edges, which may be none."""


class _Edges(NamedTuple):
    """Some rows' edges: the rows' places first:last in `picked`, and for each edge its ends.

    inner:  own rows, one for each edge
    outer:  rows of the gathered table, one for each edge
    weight: of each edge, or None where they count 1
    """

    first: int
    last: int
    inner: NDArray[np.int64]
    outer: NDArray[np.int64]
    weight: NDArray[Any] | None


class EdgeGather(LocalGather):
    """Sum, Mean or Max of messages.

    A vertex's gradient comes from two sides: as a source from its out-edges, for which the targets' rows and gradients
    travel, and as a target from its in-edges, where it also counts for the parameters: each edge once in all.

    forward_tables:  the rows
    backward_tables: the rows again, what each message's gradient is (but for an edge's weight), and for Max the maxima
    """

    def __init__(
        self,
        gather: Gather,
        program: EdgeProgram,
        server: ServerEdges,
        width: int,
        message_width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        if not isinstance(gather, Sum | Max) or type(gather) not in (Sum, Mean, Max):
            raise BadInput(f"apply_edge goes with Sum, Mean or Max, not {type(gather).__name__}")
        self._program = program
        self._width, self._message_width = width, message_width
        kind = sum_type(dtype)
        self._scale: NDArray[Any] | None = None
        self._weighted = False
        if isinstance(gather, Sum):
            self._scale = server.own_part(gather.scaling(server.graph, dtype).post)
            self._weighted = gather.weighted
            if gather.weighted:
                for walk in (self._walks.forward, self._walks.backward):
                    walk.weights(kind)  # made now, by one thread
        self._out = zero_table(server.own, message_width, kind)
        self._ties = zero_table(server.own, message_width, kind) if isinstance(gather, Max) else None
        self.forward_tables = [zero_table(self._walks.forward.columns, width, kind)]
        if training:
            self._of_rows = zero_table(server.own, width, kind)
            widths = [width, message_width] + ([] if self._ties is None else [message_width])
            self.backward_tables = [zero_table(self._walks.backward.columns, w, kind) for w in widths]

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), None, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        indptr, picked = self._walks.forward.edges.indptr, self.needed
        for edges in self._pieces(self._walks.forward, picked, *self._walks.span(first, last)):
            made = self._messages(edges, weights or {})
            begin, end = edges.first, edges.last
            if self._ties is None:
                add_messages(indptr, picked, begin, end, made, edges.weight, self._scale, self._out)
            else:
                greatest_messages(indptr, picked, begin, end, made, self._out, self._ties)
        return view(self._out, first, last, self._message_width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        rows, shares = self.backward_tables[:2]
        values = checked(gradient, end - begin, self._message_width)
        copy_range(self.forward_tables[0], rows, self.needed, begin, end)
        if self._ties is None:
            pack_range(values, self._scale, shares, self.needed, begin)
            return
        maxima = self.backward_tables[2]
        max_gradient_range(values, self._out, self._ties, maxima, shares, self.needed, begin)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> Gradients:
        given = weights or {}
        self._of_rows[first:last] = 0
        self._add_as_sources(first, last, given)
        of_weights = self._add_as_targets(first, last, given)
        return Gradients((view(self._of_rows, first, last, self._width),), of_weights)

    def _add_as_sources(self, first: int, last: int, weights: Weights) -> None:
        (rows,), targets = self.forward_tables, self.backward_tables[0]
        for edges in self._pieces(self._walks.backward, None, first, last):
            if len(edges.inner):
                ends = _rows(rows, edges.inner, self._width), _rows(targets, edges.outer, self._width)
                of_source, _, _ = self._gradients(*ends, weights, edges.outer, edges.weight)
                add_to_rows(as_rows(of_source), edges.inner, self._of_rows)

    def _add_as_targets(self, first: int, last: int, weights: Weights) -> dict[str, torch.Tensor]:
        """What the parameters get is returned: zeros where there is no edge."""
        of_weights: dict[str, torch.Tensor] = {}
        for edges in self._pieces(self._walks.forward, self.needed, *self._walks.span(first, last)):
            if len(edges.inner) or not of_weights:
                _, of_target, found = self._gradients(*self._ends(edges), weights, edges.inner, edges.weight)
                add_to_rows(as_rows(of_target), edges.inner, self._of_rows)
                for name, part in found.items():
                    of_weights[name] = of_weights[name] + part if name in of_weights else part
        return of_weights

    def _messages(self, edges: _Edges, weights: Weights) -> NDArray[Any]:
        if len(edges.inner) == 0:
            return np.empty((0, self._message_width), self._out.dtype)
        return as_rows(self._program.messages(*self._ends(edges), weights))

    def _gradients(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: Weights,
        ends: NDArray[np.int64],
        edge_weight: NDArray[Any] | None,
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The program's gradients; `ends` are the targets as the backward tables number them."""
        shares = self.backward_tables[1]
        if self._ties is None:
            of_messages = _rows(shares, ends, self._message_width)
            if edge_weight is not None:
                of_messages *= torch.from_numpy(edge_weight)[:, None]
        else:
            of_messages = torch.empty((len(ends), self._message_width), dtype=source.dtype)
            if len(ends):
                made = as_rows(self._program.messages(source, target, weights))
                share_out(made, ends, self.backward_tables[2], shares, of_messages.numpy())
        return self._program.gradients(source, target, weights, of_messages)

    def _ends(self, edges: _Edges) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of in-edges' sources and targets."""
        (rows,) = self.forward_tables
        return _rows(rows, edges.outer, self._width), _rows(rows, edges.inner, self._width)

    def _pieces(
        self, walk: Walk, picked: NDArray[np.int64] | None, first: int, last: int
    ) -> Iterator[_Edges]:
        """The edges of a range of rows, some rows at a time; one piece at least, which may have none."""
        indptr, indices, _ = walk.edges
        weights = walk.weights(self._out.dtype) if self._weighted else None
        while True:
            end = rows_within(indptr, picked, first, last, EDGES_AT_ONCE)
            outer, inner, weight = edge_ends(indptr, indices, weights, picked, first, end)
            yield _Edges(first, end, inner, outer, weight)
            if end == last:
                return
            first = end

    def _kept(self) -> list[NDArray[Any]]:
        kept = [self._out] if self._ties is None else [self._out, self._ties]
        return [*kept, self._of_rows] if self.backward_tables else kept


def _rows(table: Table, ids: NDArray[np.int64], columns: int) -> torch.Tensor:
    """A copy of the rows that `ids` names."""
    return torch.from_numpy(table)[:, :columns].index_select(0, torch.from_numpy(ids))

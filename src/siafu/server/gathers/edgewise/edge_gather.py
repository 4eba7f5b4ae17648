"""EdgeGather: a user's edge function and the reduction of its messages, on one server, and the arrays it holds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import Table, add_to_rows, copy_range, edge_ends, pack_range, rows_within
from siafu.nn.gathers.edgewise import edge_rows
from siafu.nn.tensors import as_rows
from siafu.server.costs.held_array import Grouped, HeldArray
from siafu.server.edges import ServerEdges
from siafu.server.gathers.edgewise.reduction import Reduction, picked_rows
from siafu.server.gathers.gather_tables import ResultTable
from siafu.server.gathers.local_gather import (
    GatherGradients,
    LocalGather,
    Mask,
    Weights,
    checked,
    sum_type,
    view,
)

EDGES_AT_ONCE = 1 << 16  # what is made for an edge is held for so many at a time


class EdgeProgram(Protocol):
    """An edge function and its adjoint, on rows of some edges' ends."""

    def messages(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: Weights,
        features: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[k, C] rows of both ends, and [k, D] features of the edges where they count → [k, M] messages."""

    def gradients(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: Weights,
        of_messages: torch.Tensor,
        features: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The gradients of both ends' rows [k, C], and of each parameter over all k edges, which may be none."""


class PieceEdges(NamedTuple):
    """Some rows' edges: the rows' places first:last in `picked`, and for each edge its ends.

    inner:  own rows, one for each edge
    outer:  rows of the gathered table, one for each edge
    weight: of each edge, or None where they count 1
    number: place of each among the graph's edges; None where these have no features that count
    """

    first: int
    last: int
    inner: NDArray[np.int64]
    outer: NDArray[np.int64]
    weight: NDArray[Any] | None
    number: NDArray[Any] | None


class EdgeGather(LocalGather):
    """Sum, Mean or Max of messages.

    A vertex's gradient comes from two sides: as a source from its out-edges, for which the targets' rows and gradients
    travel, and as a target from its in-edges, where it also counts for the parameters: each edge once in all.

    forward_tables:  the rows
    backward_tables: the rows again, what each message's gradient is (but for an edge's weight), and for Max the maxima
    """

    def __init__(
        self,
        reduction: Reduction,
        program: EdgeProgram,
        server: ServerEdges,
        width: int,
        message_width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
        features: int = 0,
    ) -> None:
        super().__init__(server, needed)
        self._program, self._reduction = program, reduction
        self._dtype, self._edge_columns = dtype, features
        self._numbers: dict[str, NDArray[Any]] = {}
        if features:
            for walk, direction in ((self._walks.forward, "forward"), (self._walks.backward, "backward")):
                numbers = walk.numbers(direction)
                self._numbers[direction] = np.arange(len(walk.edges.indices)) if numbers is None else numbers
        self._width, self._message_width = width, message_width
        self.resends = bool(reduction.results)
        kind, tables = np.dtype(sum_type(dtype)), self._tables
        self._kind = kind
        if reduction.weighted:
            for walk in (self._walks.forward, self._walks.backward):
                walk.weights(kind)  # made now, by one thread
        self._out = self._of_rows = tables.result("messages", message_width, kind)
        if training:
            self._of_rows = tables.result("gradients", width, kind)
        self._back_widths = [width, message_width, *[message_width] * reduction.tables] if training else []
        self._make_sources()

    def _make_sources(self) -> None:
        """Make the tables that edges read."""
        tables, walks = self._tables, self._walks
        self.forward_tables = [tables.source("rows", walks.forward.columns, self._width, self._kind)]
        self.backward_tables = [
            tables.source(f"back {k}", walks.backward.columns, width, self._kind)
            for k, width in enumerate(self._back_widths)
        ]

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), None, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        indptr, picked = self._walks.forward.edges.indptr, self.needed
        out = self._out.begin(first, last)
        self._reduction.begin(first, last)
        for edges in self._pieces("forward", picked, *self._walks.span(first, last)):
            made = self._messages(edges, weights or {})
            self._reduction.reduce(indptr, picked, edges.first, edges.last, made, edges.weight, out)
        return view(out, first, last, self._message_width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        rows, *tables = self.backward_tables
        values = checked(gradient, end - begin, self._message_width)
        copy_range(self.forward_tables[0], rows, self.needed, begin, end)
        self._reduction.send_back(values, self._out, tables, self.needed, begin)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        given = weights or {}
        of_rows = self._of_rows.begin(first, last)
        of_rows[first:last] = 0
        self._add_as_sources(of_rows, first, last, given)
        of_weights = self._add_as_targets(of_rows, first, last, given)
        return GatherGradients((view(of_rows, first, last, self._width),), of_weights)

    def _add_as_sources(self, of_rows: Table, first: int, last: int, weights: Weights) -> None:
        (rows,), targets = self.forward_tables, self.backward_tables[0]
        for edges in self._pieces("backward", None, first, last):
            if len(edges.inner):
                ends = (
                    picked_rows(rows, edges.inner, self._width),
                    picked_rows(targets, edges.outer, self._width),
                )
                of_source, _, _ = self._gradients(*ends, weights, edges.outer, edges)
                add_to_rows(as_rows(of_source), edges.inner, of_rows)

    def _add_as_targets(
        self, of_rows: Table, first: int, last: int, weights: Weights
    ) -> dict[str, torch.Tensor]:
        """Returns the parameters' gradients: zeros where there is no edge."""
        of_weights: dict[str, torch.Tensor] = {}
        for edges in self._pieces("forward", self.needed, *self._walks.span(first, last)):
            if len(edges.inner) or not of_weights:
                _, of_target, found = self._gradients(*self._ends(edges), weights, edges.inner, edges)
                add_to_rows(as_rows(of_target), edges.inner, of_rows)
                for name, part in found.items():
                    of_weights[name] = of_weights[name] + part if name in of_weights else part
        return of_weights

    def _messages(self, edges: PieceEdges, weights: Weights) -> NDArray[Any]:
        if len(edges.inner) == 0:
            return np.empty((0, self._message_width), self._kind)
        return as_rows(self._program.messages(*self._ends(edges), weights, self._features(edges)))

    def _gradients(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: Weights,
        ends: NDArray[np.int64],
        edges: PieceEdges,
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The program's gradients; `ends` are the targets as the backward tables number them."""
        return self._of_piece(source, target, weights, ends, self.backward_tables[1:], edges)

    def _of_piece(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        weights: Weights,
        ends: NDArray[np.int64],
        tables: Sequence[Table],
        edges: PieceEdges,
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The same with other tables for what messages' gradients are made of."""
        features = self._features(edges)

        def messages() -> NDArray[Any]:
            return as_rows(self._program.messages(source, target, weights, features))

        of_messages = self._reduction.of_messages(ends, tables, edges.weight, self._message_width, messages)
        return self._program.gradients(source, target, weights, of_messages, features)

    def _features(self, edges: PieceEdges) -> torch.Tensor | None:
        if edges.number is None:
            return None
        return edge_rows(self.server.graph, edges.number, self._dtype, self._edge_columns)

    def _ends(self, edges: PieceEdges) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of in-edges' sources and targets."""
        (rows,) = self.forward_tables
        return picked_rows(rows, edges.outer, self._width), picked_rows(rows, edges.inner, self._width)

    def _pieces(
        self, direction: str, picked: NDArray[np.int64] | None, first: int, last: int
    ) -> Iterator[PieceEdges]:
        """The edges of a range of rows, some rows at a time; one piece at least, which may have none."""
        numbers = self._numbers.get(direction)
        indptr, indices, weights = self._edges(direction)
        while True:
            end = rows_within(indptr, picked, first, last, EDGES_AT_ONCE)
            outer, inner, weight = edge_ends(indptr, indices, weights, picked, first, end)
            number = None
            if numbers is not None:
                _, _, number = edge_ends(indptr, indices, numbers, picked, first, end)
            yield PieceEdges(first, end, inner, outer, weight, number)
            if end == last:
                return
            first = end

    def _edges(self, direction: str) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any] | None]:
        """Where rows' edges begin, their ends, and their weights where these count."""
        walk = self._walks.forward if direction == "forward" else self._walks.backward
        indptr, indices, _ = walk.edges
        return indptr, indices, walk.weights(self._kind) if self._reduction.weighted else None

    def _results(self) -> list[ResultTable]:
        return [self._out, self._of_rows, *self._reduction.results]


def held_on_edges(width: int, message_width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
    """The arrays of an edge function, besides those of its reduction."""
    out = HeldArray(
        "messages", "reduced to rows", "backward", message_width, itemsize, "own", "needed", passes=True
    )
    # On disk: what goes back is read in order beside the rows, and rows beside what goes back.
    rows = HeldArray(
        "rows",
        "read at both ends of an edge",
        "backward",
        width,
        itemsize,
        "forward",
        "all",
        on_disk="source",
        grouped=Grouped(2 * message_width, collected=True, through=2),
        reads_back=1,
    )
    if not training:
        return out, rows
    again = replace(
        rows,
        name="rows sent back",
        until="gather",
        rows="backward",
        forward=None,
        backward="needed",
        grouped=Grouped(width, collected=True),
        beside=True,
        reads_back=0,
    )
    shares = Grouped(collected=True, through=1)
    return (
        out,
        rows,
        HeldArray("gradients", "of rows", "backward", width, itemsize, "own", backward="all", passes=True),
        again,
        replace(again, name="shares", purpose="gradients of messages", columns=message_width, grouped=shares),
    )

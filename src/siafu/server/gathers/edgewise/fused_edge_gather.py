"""FusedEdgeGather: an edge function that works element by element, on one server, without a row for an edge."""

import torch

from siafu.kernels import CodeTables, EdgeCode, Table, run_code
from siafu.server.edges import ServerEdges
from siafu.server.gathers.edgewise.edge_code import EdgeCodes
from siafu.server.gathers.edgewise.edge_gather import EdgeGather, EdgeProgram
from siafu.server.gathers.edgewise.reduction import Reduction
from siafu.server.gathers.local_gather import GatherGradients, Mask, Weights, view


class FusedEdgeGather(EdgeGather):
    """Sum, Mean or Max of messages; the edge machine runs the function and both its gradients."""

    def __init__(
        self,
        reduction: Reduction,
        program: EdgeProgram,
        codes: EdgeCodes,
        server: ServerEdges,
        width: int,
        message_width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(
            reduction, program, server, width, message_width, dtype, needed=needed, training=training
        )
        self._codes = codes

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        out = self._out.begin(first, last)
        self._reduction.begin(first, last)
        reduction, (rows,) = self._reduction, self.forward_tables
        run_code(
            self._edges("forward"),
            self.needed,
            *self._walks.span(first, last),
            self._codes.messages,
            CodeTables(rows, rows, rows, rows, targets_own=True),
            out,
            None if reduction.ties is None else reduction.ties.table(),
            reduction.scale,
            fresh=True,
        )
        return view(out, first, last, self._message_width)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        assert self._codes.to_source is not None and self._codes.to_target is not None
        of_rows = self._of_rows.begin(first, last)
        of_rows[first:last] = 0
        (rows,), (targets, *given) = self.forward_tables, self.backward_tables
        gradient, maxima = given[0], given[-1]
        self._add(
            "backward",
            self._codes.to_source,
            CodeTables(targets, rows, gradient, maxima, targets_own=False),
            of_rows,
            first,
            last,
        )
        self._add(
            "forward",
            self._codes.to_target,
            CodeTables(rows, rows, gradient, maxima, targets_own=True),
            of_rows,
            *self._walks.span(first, last),
        )
        return GatherGradients((view(of_rows, first, last, self._width),), {})

    def _add(
        self, direction: str, code: EdgeCode, tables: CodeTables, of_rows: Table, first: int, last: int
    ) -> None:
        if len(code.stores):
            picked = self.needed if direction == "forward" else None
            run_code(self._edges(direction), picked, first, last, code, tables, of_rows, fresh=False)

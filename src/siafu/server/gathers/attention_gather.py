"""AttentionGather: Softmax on a server."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import (
    LANES,
    Attention,
    Table,
    attend_adjoint_range,
    attend_range,
    attention_gradient_range,
    pack_heads_range,
    row_list,
)
from siafu.nn.gathers.gather import Softmax
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges
from siafu.server.gathers.early_gather import EarlyAttentionAdjoint
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


class AttentionGather(LocalGather):
    """Softmax-weighted rows. `send` takes rows, source logits and target logits.

    forward_tables:  rows with padded heads, source logits [·, heads]
    backward_tables: the gradient with padded heads, and [target logit, log_sum, ⟨gradient, out⟩] of each head

    Tables of logits are not padded: many rows share a cache line.
    """

    resends = True

    def __init__(
        self,
        gather: Softmax,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        heads = gather.heads
        self._head_width = width // heads
        padded = head_columns(self._head_width)
        self._how = Attention(heads, padded, gather.slope, gather.self_loops)
        own, kind, tables = server.own, np.dtype(sum_type(dtype)), self._tables
        self._out = self._back = tables.result("sums", heads * padded, kind)
        self._target, self._log_sum = (np.zeros((own, heads), kind) for _ in range(2))
        stored = storage(kind, gather.precision)
        columns = self._walks.forward.columns
        rows = tables.source("rows", columns, heads * padded, stored)
        self.forward_tables = [rows, np.zeros((columns, heads), kind)]
        self._positive: ResultTable | None = None
        self._positive_share: NDArray[Any] | None = None
        if training:
            # What was gathered for these rows went into the targets by then.
            self._back = tables.result("gradients", heads * padded, kind, over=self._out)
            self._positive = tables.result("positive sums", heads * padded, kind)
            self._positive_share, self._of_source, self._of_target = (
                np.zeros((own, heads), kind) for _ in range(3)
            )
            columns = self._walks.backward.columns
            targets = np.zeros((columns, 3 * heads), kind)
            # Nothing comes back along an edge to a row that never sends: its weight is exp(-inf).
            targets[:, heads : 2 * heads] = np.inf
            self.backward_tables = [tables.source("gradients", columns, heads * padded, stored), targets]
            if tables.results_stay:
                self.early_backward = EarlyAttentionAdjoint(
                    self._walks.backward,
                    rows,
                    self.forward_tables[1],
                    targets,
                    self.backward_tables[0],
                    self._how,
                    self._back.table(),
                    self._of_source,
                )

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        x, source, target = sent
        rows, sources = self.forward_tables
        heads, count = self._how.heads, last - first
        values = checked(x, count, heads * self._head_width)
        pack_heads_range(values, rows, heads, self._how.head_columns, None, first)
        sources[first:last] = checked(source, count, heads)
        self._target[first:last] = checked(target, count, heads)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        walk = self._walks.forward
        rows, sources = self.forward_tables
        first_needed, last_needed = self._walks.span(first, last)
        out = self._out.begin(first, last)
        attend_range(
            walk.edges.indptr,
            walk.edges.indices,
            rows,
            sources,
            self._target,
            *self._how._replace(dropout=dropout, seed=seed).arguments,
            row_list(walk.drawn),
            out,
            self._log_sum,
            None if self._positive is None else self._positive.begin(first, last),
            self._positive_share,
            row_list(self.needed),
            first_needed,
            last_needed,
        )
        return self._joined(out, first, last)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        packed, targets = self.backward_tables
        assert self._positive is not None, "nothing goes back without training"
        attention_gradient_range(
            checked(gradient, end - begin, self._how.heads * self._head_width),
            self._how.heads,
            self._how.head_columns,
            self._how.slope,
            self._target,
            self._out.table(),
            self._log_sum,
            self._positive.table(),
            self._positive_share,
            packed,
            targets,
            self._of_target,
            row_list(self.needed),
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        walk = self._walks.backward
        rows, sources = self.forward_tables
        gradient, targets = self.backward_tables
        out = self._back.begin(first, last)
        begun = self.early_backward is not None and self.early_backward.end(
            first, last, dropout=dropout, seed=seed
        )
        if not begun:
            attend_adjoint_range(
                walk.edges.indptr,
                walk.edges.indices,
                rows,
                sources,
                targets,
                gradient,
                *self._how._replace(dropout=dropout, seed=seed).arguments,
                row_list(walk.drawn),
                out,
                self._of_source,
                first,
                last,
            )
        logits = (torch.from_numpy(of[first:last]) for of in (self._of_source, self._of_target))
        return GatherGradients((self._joined(out, first, last), *logits), {})

    def _joined(self, out: Table, first: int, last: int) -> torch.Tensor:
        """Gathered rows with no gap between heads; a copy only where there are several, with gaps."""
        heads, padded = self._how.heads, self._how.head_columns
        if heads == 1 or padded == self._head_width:
            return view(out, first, last, heads * self._head_width)
        rows = view(out, first, last, heads * padded)
        return rows.reshape(last - first, heads, padded)[:, :, : self._head_width].flatten(1)

    def _kept(self) -> list[NDArray[Any]]:
        kept = [self._target, self._log_sum]
        if self._positive_share is None:
            return kept
        return [*kept, self._positive_share, self._of_source, self._of_target]

    def _results(self) -> list[ResultTable]:
        made = [self._out, self._back]
        return made if self._positive is None else [*made, self._positive]


def head_columns(head_width: int) -> int:
    """Columns of a head, as kernels want them."""
    return -(-head_width // LANES) * LANES

"""AttentionGather: Softmax on one server."""

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
    zero_table,
)
from siafu.nn.gather import Softmax
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges
from siafu.server.local_gather import Gradients, LocalGather, Mask, Weights, checked, sum_type, view


class AttentionGather(LocalGather):
    """Softmax-weighted rows. `send` takes rows, source logits and target logits.

    forward_tables:  rows with padded heads, source logits [·, heads]
    backward_tables: the gradient with padded heads, and [target logit, log_sum, ⟨gradient, out⟩] of each head

    Tables of logits are not padded: many rows share a cache line.
    """

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
        padded = -(-self._head_width // LANES) * LANES
        self._how = Attention(heads, padded, gather.slope, gather.self_loops)
        own, kind = server.own, sum_type(dtype)
        self._out = zero_table(own, heads * padded, kind)
        self._target, self._log_sum = (np.zeros((own, heads), kind) for _ in range(2))
        stored = storage(self._out, gather.precision)
        columns = self._walks.forward.columns
        self.forward_tables = [zero_table(columns, heads * padded, stored), np.zeros((columns, heads), kind)]
        self._positive: Table | None = None
        self._positive_share: NDArray[Any] | None = None
        if training:
            self._positive = zero_table(own, heads * padded, kind)
            self._positive_share, self._of_source, self._of_target = (
                np.zeros((own, heads), kind) for _ in range(3)
            )
            columns = self._walks.backward.columns
            targets = np.zeros((columns, 3 * heads), kind)
            # Nothing comes back along an edge to a row that never sends: its weight is exp(-inf).
            targets[:, heads : 2 * heads] = np.inf
            self.backward_tables = [zero_table(columns, heads * padded, stored), targets]

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
        attend_range(
            walk.edges.indptr,
            walk.edges.indices,
            rows,
            sources,
            self._target,
            *self._how._replace(dropout=dropout, seed=seed).arguments,
            walk.ids,
            self._out,
            self._log_sum,
            self._positive,
            self._positive_share,
            self.needed,
            first_needed,
            last_needed,
        )
        return self._joined(first, last)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        packed, targets = self.backward_tables
        attention_gradient_range(
            checked(gradient, end - begin, self._how.heads * self._head_width),
            self._how.heads,
            self._how.head_columns,
            self._how.slope,
            self._target,
            self._out,
            self._log_sum,
            self._positive,
            self._positive_share,
            packed,
            targets,
            self._of_target,
            self.needed,
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> Gradients:
        walk = self._walks.backward
        rows, sources = self.forward_tables
        gradient, targets = self.backward_tables
        # What was gathered for these rows went into the targets: its place is free.
        attend_adjoint_range(
            walk.edges.indptr,
            walk.edges.indices,
            rows,
            sources,
            targets,
            gradient,
            *self._how._replace(dropout=dropout, seed=seed).arguments,
            walk.ids,
            self._out,
            self._of_source,
            first,
            last,
        )
        logits = (torch.from_numpy(of[first:last]) for of in (self._of_source, self._of_target))
        return Gradients((self._joined(first, last), *logits), {})

    def _joined(self, first: int, last: int) -> torch.Tensor:
        """Rows of `_out` with no gap between heads; a copy only where there are several, with gaps."""
        heads, padded = self._how.heads, self._how.head_columns
        if heads == 1 or padded == self._head_width:
            return view(self._out, first, last, heads * self._head_width)
        rows = view(self._out, first, last, heads * padded)
        return rows.reshape(last - first, heads, padded)[:, :, : self._head_width].flatten(1)

    def _kept(self) -> list[NDArray[Any]]:
        kept = [self._out, self._target, self._log_sum]
        if self._positive is None or self._positive_share is None:
            return kept
        return [*kept, self._positive, self._positive_share, self._of_source, self._of_target]

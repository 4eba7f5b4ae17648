"""SumGather: Sum, Mean and GcnSum on one server."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import (
    MAX_TILE,
    Blocks,
    Table,
    pack_range,
    sum_blocks_range,
    sum_range,
    zero_table,
)
from siafu.nn.gather import Sum
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges, Walk
from siafu.server.local_gather import Gradients, LocalGather, Mask, Weights, checked, sum_type, view


class SumGather(LocalGather):
    """out = post · (A + diag(self_weight)) · pre · x; rows travel with their factor, `pre` forth and `post` back."""

    def __init__(
        self,
        gather: Sum,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._width = width
        scaling = gather.scaling(server.graph, dtype)
        self._pre, self._post = server.own_part(scaling.pre), server.own_part(scaling.post)
        self._self_weight = server.own_part(scaling.self_weight)
        self._out = zero_table(server.own, width, sum_type(dtype))
        stored = storage(self._out, gather.precision)
        self._weighted = gather.weighted
        self.forward_tables = [zero_table(self._walks.forward.columns, width, stored)]
        self._forward = self._slabs(self._walks.forward, self.forward_tables[0])
        if training:
            self.backward_tables = [zero_table(self._walks.backward.columns, width, stored)]
            self._backward = self._slabs(self._walks.backward, self.backward_tables[0])

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), self._pre, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        span = self._walks.span(first, last)
        self._sum(self._walks.forward, self._forward, self._post, self.needed, *span)
        return view(self._out, first, last, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        pack_range(
            checked(gradient, end - begin, self._width),
            self._post,
            self.backward_tables[0],
            self.needed,
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> Gradients:
        # What was gathered forward for these rows has been used up: the gradient of it has been sent.
        self._sum(self._walks.backward, self._backward, self._pre, None, first, last)
        return Gradients((view(self._out, first, last, self._width),), {})

    def _sum(
        self,
        walk: Walk,
        slabs: list[tuple[Table, Table, Blocks | None]],
        scale: NDArray[Any] | None,
        picked: NDArray[np.int64] | None,
        first: int,
        last: int,
    ) -> None:
        for rows, out, blocks in slabs:
            if blocks is not None:
                sum_blocks_range(*blocks, rows, self._self_weight, scale, out, picked, first, last)
                continue
            indptr, indices, _ = walk.edges
            weights = walk.weights(self._out.dtype) if self._weighted else None
            sum_range(indptr, indices, weights, rows, self._self_weight, scale, out, picked, first, last)

    def _slabs(self, walk: Walk, table: Table) -> list[tuple[Table, Table, Blocks | None]]:
        """Columns that are summed together: rows, sums, and the blocks that suit rows this wide."""
        weighed = self._out.dtype if self._weighted else None
        slabs = []
        for c in range(0, table.shape[1], MAX_TILE):
            rows = table[:, c : c + MAX_TILE]
            row_bytes = max(min(rows.shape[1] * rows.itemsize, table.strides[0]), 64)
            blocks = walk.blocks(row_bytes, weighed, self_loops=self._self_weight is None)
            if blocks is None and self._weighted:
                walk.weights(self._out.dtype)  # made now, by one thread
            slabs.append((rows, self._out[:, c : c + MAX_TILE], blocks))
        return slabs

    def _kept(self) -> list[NDArray[Any]]:
        return [self._out]

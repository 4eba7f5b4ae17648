"""MaxGather: Max on one server."""

from typing import Any

import torch
from numpy.typing import NDArray

from siafu.kernels import max_adjoint_range, max_gradient_range, max_range, pack_range, zero_table
from siafu.nn.gather import Max
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges
from siafu.server.local_gather import Gradients, LocalGather, Mask, Weights, checked, sum_type, view


class MaxGather(LocalGather):
    """The greatest of each column. Back travel the maxima, and what each row that reaches one gets."""

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
        kind = sum_type(dtype)
        self._out, self._ties = (zero_table(server.own, width, kind) for _ in range(2))
        stored = storage(self._out, gather.precision)
        self.forward_tables = [zero_table(self._walks.forward.columns, width, stored)]
        if training:
            columns = self._walks.backward.columns
            self.backward_tables = [zero_table(columns, width, kind) for _ in range(2)]

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        pack_range(checked(x, last - first, self._width), None, self.forward_tables[0], None, first)

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        indptr, indices, _ = self._walks.forward.edges
        (rows,) = self.forward_tables
        span = self._walks.span(first, last)
        max_range(indptr, indices, rows, self._out, self._ties, self.needed, *span)
        return view(self._out, first, last, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        maxima, shares = self.backward_tables
        max_gradient_range(
            checked(gradient, end - begin, self._width),
            self._out,
            self._ties,
            maxima,
            shares,
            self.needed,
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> Gradients:
        indptr, indices, _ = self._walks.backward.edges
        (rows,) = self.forward_tables
        maxima, shares = self.backward_tables
        # The maxima of these rows have been sent: their place is free.
        max_adjoint_range(indptr, indices, rows, maxima, shares, self._out, first, last)
        return Gradients((view(self._out, first, last, self._width),), {})

    def _kept(self) -> list[NDArray[Any]]:
        return [self._out, self._ties]

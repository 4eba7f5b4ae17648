"""PairWeights: from a model's parameters to what kernels of pairs take, and back."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import Attention, Table, zero_table
from siafu.nn.gathers.pair_softmax import PairSoftmax, mix_of, of_mix, one_row, unpadded
from siafu.server.gathers.local_gather import Weights, view


class PairWeights(NamedTuple):
    """The parameters of a softmax of pairs.

    how:    as kernels take it; kind: what rows are summed in
    names:  of the model's parameters, in the gather's order; learnt: those that get gradients
    """

    gather: PairSoftmax
    how: Attention
    kind: np.dtype[Any]
    names: tuple[str, ...]
    learnt: tuple[str, ...]

    @property
    def additive(self) -> bool:
        return self.gather.form == "additive"

    def both_ends(self, sources: list[Table], rows: Table, weights: Weights | None) -> tuple[Any, ...]:
        """Keys, values, targets and queries, as kernels take them; rows: those of targets or queries."""
        if not self.additive:
            return (*sources, None, rows)
        query = one_row((weights or {})[self.names[0]], len(rows), self.how, self.kind)
        return (*sources, None, rows, query)

    def mix(self, weights: Weights | None) -> NDArray[Any] | None:
        """The map of edges' features; None: they have none that count."""
        if not self.gather.features:
            return None
        return mix_of((weights or {})[self.names[-1]], self.how, self.kind)

    def begin(self) -> tuple[NDArray[Any], Table | None]:
        """Zeros that gradients are added to: of the query, and of the mix."""
        columns = self.how.heads * self.how.head_columns
        mixed = zero_table(self.gather.features, columns, self.kind) if self.gather.features else None
        return np.zeros(columns, self.kind), mixed

    def gradients(
        self, query: NDArray[Any], mixed: Table | None, weights: Weights | None
    ) -> dict[str, torch.Tensor]:
        """Of the parameters, from what was added up."""
        given, found = weights or {}, {}
        if self.additive:
            name = self.names[0]
            found[name] = unpadded(query, self.how, given[name])
        if mixed is not None:
            name = self.names[-1]
            found[name] = of_mix(mixed, self.how, given[name])
        return {name: found[name] for name in self.learnt}

    def joined(self, out: Table, first: int, last: int, width: int) -> torch.Tensor:
        """Rows with no gap between heads; a copy only where there are several, with gaps."""
        heads, padded = self.how.heads, self.how.head_columns
        if heads == 1 or heads * padded == width:
            return view(out, first, last, width)
        rows = view(out, first, last, heads * padded)
        return rows.reshape(last - first, heads, padded)[:, :, : width // heads].flatten(1)


def in_one_place(row: NDArray[Any], rows: int) -> Table:
    """A table whose rows all lie where `row` does."""
    return np.lib.stride_tricks.as_strided(row, (rows, len(row)), (0, row.itemsize))

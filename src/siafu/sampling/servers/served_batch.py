"""ServedBatch: a batch in shares, one a server, and the model on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.sampling.sampled_model import BatchResult, SampledBatch, SampledModel
from siafu.sampling.servers.column_rows import ColumnBatch
from siafu.sampling.servers.moved import Moved, weight_bytes


@dataclass(frozen=True, slots=True, eq=False)
class ServedBatch:
    """A batch that several servers compute.

    epoch, number, edges: as a `SampledBatch` has them
    vertices: [N] of the whole sample
    shares:   what each server computes; servers without a vertex of the batch have none
    columns:  features by columns, which all shares read; None: every share has the rows that it needs
    moved:    bytes that travelled to prepare it
    servers:  how many there are
    """

    epoch: int
    number: int
    vertices: NDArray[np.int64]
    edges: int
    shares: tuple[SampledBatch, ...]
    columns: ColumnBatch | None
    moved: Moved
    servers: int
    read_bytes: int = 0

    @property
    def num_vertices(self) -> int:
        return len(self.vertices)


class ServedModel:
    """Runs a model on batches in shares. Loss and gradients are those of the whole batch, but for rounding.

    moved: bytes that travelled for the batches so far
    """

    def __init__(self, model: SampledModel) -> None:
        self._model, self.moved = model, Moved()

    def run(self, batch: ServedBatch, weights: Mapping[str, Tensor], seed: int) -> BatchResult:
        """Loss and gradients of a batch: those of all shares added up, in the order of the servers."""
        terms = [self._model.terms_of(share.y) for share in batch.shares]
        results = [self._model.run(share, weights, seed, over=sum(terms)) for share in batch.shares]
        gradients = added_up(each.gradients for each in results)
        reduced, size = sum(each.numel() for each in gradients.values()), 4
        if gradients:
            size = next(iter(gradients.values())).element_size()
        moved = batch.moved + Moved(weights=weight_bytes(reduced, size, len(batch.shares)))
        if batch.columns is not None:
            moved += Moved(products=2 * batch.columns.pulled_numbers * size)
            gradients = added_up((gradients, batch.columns.weight_gradients()))
        self.moved += moved
        return BatchResult(sum(each.loss_sum for each in results), sum(terms), gradients, {})


def added_up(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Gradients of all parts, in their order."""
    total: dict[str, Tensor] = {}
    for part in parts:
        for name, gradient in part.items():
            total[name] = total[name] + gradient if name in total else gradient
    return total

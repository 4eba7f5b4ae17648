"""FusedGathers: the gathers of a lane whose rows have no table: a tensor phase's task makes them, and uses them up."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from siafu.program.program import GatherStep, Program
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.rows.blocks import Chunk
from siafu.server.rows.interval_rows import IntervalRows, gradient_of
from siafu.weights.gradient_sums import GradientSums

Weights = Mapping[str, Tensor]
ROWS_AT_ONCE = 8192
"""About as many rows are gathered at a time: enough for the edges to be read in long stretches, few enough for a cache."""
_Step = tuple[GatherStep, LocalGather]


class Draw(NamedTuple):
    """Random numbers for the dropout of one epoch.

    key:  of tensor phases
    seed: of a gather's dropout, by its number in the model
    """

    key: Tensor
    seed: Callable[[int], int]

    def of(self, gather: GatherStep) -> Any:
        """A gather's own, as it takes it."""
        share = gather.site.dropout
        return {"dropout": share, "seed": self.seed(gather.site.dropout_site)} if share else {}


class FusedGathers:
    """Gathers a chunk of rows at a time, in the calling thread. What it makes passes by in an interval's rows.

    gathers: for each graph phase, its gathers
    fused:   the graph phases, by place, whose rows have no table; of all others it makes nothing
    again:   for each tensor phase, which of its inputs its backward task reads, by place
    """

    def __init__(
        self,
        program: Program,
        gathers: Sequence[Sequence[LocalGather]],
        fused: Collection[int],
        again: Sequence[Collection[int]],
    ) -> None:
        self._last = len(program.phases) - 1
        self._steps: dict[int, list[_Step]] = {
            depth: list(zip(program.gathers[depth], gathers[depth], strict=True)) for depth in fused
        }
        self._again = [self._read_again(program, phase, again[phase]) for phase in range(len(program.phases))]

    def gather(self, phase: int, rows: IntervalRows, chunk: Chunk, weights: Weights, draw: Draw) -> None:
        """Rows that tensor phase `phase` reads."""
        _gather(self._steps.get(phase - 1, ()), rows, chunk, weights, draw)

    def gather_again(
        self, phase: int, rows: IntervalRows, chunk: Chunk, weights: Weights, draw: Draw
    ) -> None:
        """The same rows once more, as far as the backward task of the phase reads them."""
        _gather(self._again[phase], rows, chunk, weights, draw)

    def gather_back(
        self, phase: int, rows: IntervalRows, chunk: Chunk, weights: Weights, draw: Draw
    ) -> Mapping[str, Tensor]:
        """The gradients of what tensor phase `phase` sent; returns those of the edge functions' weights."""
        gradients = GradientSums()
        for gather, local in self._steps.get(phase, ()):
            found = local.backward(chunk.first, chunk.last, weights=weights, **draw.of(gather))
            for name, gradient in zip(gather.sent, found.sent, strict=True):
                if name in gather.differentiated:
                    rows.pass_sum(gradient_of(name), chunk.inside, gradient)
            gradients.add(found.weights)
        return gradients.sums

    def chunk_rows(self, phase: int) -> int | None:
        """Rows to make at a time for tensor phase `phase`, forth and back; None: all of an interval."""
        steps = [*self._steps.get(phase - 1, ()), *self._steps.get(phase, ())]
        # The edges of all rows are cut in pieces from the first on, and products over edges differ with the pieces.
        if not steps or any(gather.edge is not None or gather.learnt for gather, _ in steps):
            return None
        return ROWS_AT_ONCE

    def _read_again(self, program: Program, phase: int, read: Collection[int]) -> list[_Step]:
        """The gathers that the backward task of a phase runs again: it reads their rows, or sends gradients by them."""
        if phase == self._last:  # its loss and its gradients are one task
            return []
        names = {program.phases[phase].inputs[k] for k in read}
        steps = self._steps.get(phase - 1, ())
        return [(gather, local) for gather, local in steps if gather.out in names or local.resends]


def _gather(steps: Sequence[_Step], rows: IntervalRows, chunk: Chunk, weights: Weights, draw: Draw) -> None:
    for gather, local in steps:
        found = local.forward(chunk.first, chunk.last, weights=weights, **draw.of(gather))
        rows.pass_by(gather.out, chunk.inside.start, found)

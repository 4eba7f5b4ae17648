"""ReduceCost: what statistics over all vertices add to the tensor stages beside them."""

from dataclasses import dataclass

from siafu.pipeline.schedule import Stage
from siafu.program.program import ReduceStep
from siafu.server.costs.extent import Extent

NUMBER = 8
"""Bytes of a number that is summed: all sums are in float64."""


@dataclass(frozen=True, slots=True)
class ReduceCost:
    """names: what is done, for people; flops, moved: operations and bytes over all rows; sent: bytes that a task sends to each server"""

    names: tuple[str, ...] = ()
    flops: float = 0.0
    moved: float = 0.0
    sent: float = 0.0


def reduce_cost(extent: Extent, stage: Stage) -> ReduceCost:
    """Of the statistics that a tensor stage takes of its rows, or whose gradients it gives back to them."""
    if not (stage.sums or stage.totals):
        return ReduceCost()
    reduces, rows = extent.program.reduces, extent.vertices
    sent = 0.0
    if stage.direction == "forward":
        steps = reduces[stage.phase] if stage.phase < len(reduces) else ()
        sent = float(sum(sum_bytes(step) for step in steps))
        flops, passes = (5, 1)
    else:
        before = reduces[stage.phase - 1] if stage.phase and stage.sums else ()
        sent = float(sum(sum_bytes(step, back=True) for step in before if step.differentiated))
        after = reduces[stage.phase] if stage.phase < len(reduces) else ()
        steps = tuple(step for step in after if step.differentiated)
        flops, passes = (3, 3)
    numbers = rows * sum(step.width for step in steps)
    return ReduceCost(
        tuple(_name(step, back=stage.direction == "backward") for step in steps),
        flops * numbers,
        passes * numbers * extent.itemsize,
        sent,
    )


def sum_bytes(step: ReduceStep, *, back: bool = False) -> int:
    """Of an interval's sums: with the number of its rows; back: of its part of their gradient."""
    return NUMBER * ((2 if step.variance else 1) * step.width + (not back))


def _name(step: ReduceStep, *, back: bool) -> str:
    what = "mean+variance" if step.variance else "mean"
    return f"{'∇' if back else ''}{what}-of-all-vertices"

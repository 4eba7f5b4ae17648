"""Gather stages: a graph phase, made of one gather or several."""

from collections.abc import Sequence
from functools import reduce

from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import GATHER
from siafu.program.headline import describe_gather
from siafu.program.program import GatherStep
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.stage_cost import StageCost
from siafu.server.costs.work import Work
from siafu.server.gathers.behaviour import edge_program
from siafu.server.gathers.registry import behaviour_of, held_by_step
from siafu.server.lane import Done, Lane, Weights
from siafu.server.stages.behaviour import LocalStage, StageBehaviour
from siafu.server.stages.draws import Draws


class LocalGatherStage(LocalStage):
    """Gathers into an interval's rows, or the gradients of what they sent."""

    def __init__(self, lane: Lane, stage: Stage, draws: Draws) -> None:
        self._walk = lane.gather if stage.direction == "forward" else lane.gather_back
        self._lane, self._phase, self._draws = lane, stage.phase, draws
        self._back = stage.direction == "backward"
        self.begins = lane.begins(stage.phase, back=self._back)

    def run(self, interval: int, weights: Weights, epoch: int) -> Done:
        return self._walk(self._phase, interval, weights, self._draws.of(epoch))

    def begin(self, interval: int, epoch: int, until: int) -> None:
        self._lane.begin_gather(self._phase, interval, self._draws.of(epoch), until, back=self._back)


class GatherStages(StageBehaviour):
    """Graph phases. What an edge costs is told by the gathers themselves."""

    kind = GATHER

    def local(self, lane: Lane, stage: Stage, draws: Draws) -> LocalStage:
        return LocalGatherStage(lane, stage, draws)

    def cost(self, extent: Extent, stage: Stage) -> StageCost:
        if _is_taken(extent, stage):
            widths = tuple(step.site.width for step in extent.steps(stage))
            rows = round(_rows(extent, stage))
            return StageCost(str(stage), "rows", rows, widths, widths, operations=("taken",))
        return gather_cost(extent, stage, extent.steps(stage))

    def work(self, extent: Extent, stage: Stage) -> Work:
        if _is_taken(extent, stage):
            return Work(_rows(extent, stage))
        return gather_work(extent, stage, extent.steps(stage))

    def held(self, extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
        if stage.direction == "backward":  # what goes back is held by the same gathers
            return ()
        return tuple(
            each.of(step.out)
            for step in extent.steps(stage)
            for each in held_by_step(
                step,
                extent.widths(step.sent)[0],
                extent.itemsize,
                training=extent.training,
                last=stage.phase == extent.last,
            )
        )


def gather_cost(extent: Extent, stage: Stage, steps: Sequence[GatherStep]) -> StageCost:
    """Of gathers over the edges of a graph phase."""
    edges, back = round(extent.edges_of(stage)), stage.direction == "backward"
    programs = [found for step in steps if (found := edge_program(step, back=back)) is not None]
    sent = tuple(width for step in steps for width in extent.widths(step.sent))
    given = tuple(step.site.width for step in steps)
    behaviours = [(behaviour_of(step.site.gather), step) for step in steps]
    flops = sum(
        each.flops(step.site.gather, step.site.width, back=back, weighted=extent.weighted)
        for each, step in behaviours
    )
    return StageCost(
        str(stage),
        "edges",
        edges,
        given if back else sent,
        sent if back else given,
        sum(extent.parameters(step.learnt) for step in steps),
        flops * edges + sum(program.flops(edges) for program in programs),
        sum(each.edge_bytes(step, extent, back=back) for each, step in behaviours) * edges,
        0,
        tuple(describe_gather(step.site) for step in steps),
        programs[0].hash if programs else None,
        "\n".join(map(str, programs)),
    )


def gather_work(extent: Extent, stage: Stage, steps: Sequence[GatherStep]) -> Work:
    """The same in virtual time."""
    rows, edges, back = _rows(extent, stage), extent.edges_of(stage), stage.direction == "backward"
    return reduce(
        Work.beside, (behaviour_of(step.site.gather).work(step, rows, edges, back=back) for step in steps)
    )


def _rows(extent: Extent, stage: Stage) -> float:
    return extent.vertices if stage.direction == "backward" else extent.rows_of(stage)


def _is_taken(extent: Extent, stage: Stage) -> bool:
    """Whether rows were gathered by columns before, and are there."""
    return any(step.slices for step in extent.steps(stage))

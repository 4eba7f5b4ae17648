"""Column stages: a graph phase laid out by columns: a server gathers its columns for a share of all vertices."""

from collections.abc import Iterable
from dataclasses import replace

from siafu.pipeline.schedule import Stage, by_columns
from siafu.pipeline.stage_kind import COLUMNS
from siafu.program.program import Program
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.stage_cost import StageCost
from siafu.server.costs.work import Work
from siafu.server.gathers.by_columns.column_gather import ColumnGather
from siafu.server.gathers.registry import column_bytes, held_by_slice, slice_step
from siafu.server.lane import Done, Lane, Weights
from siafu.server.stages.behaviour import LocalStage, StageBehaviour
from siafu.server.stages.draws import Draws
from siafu.server.stages.gather import gather_cost, gather_work


class LocalColumnStage(LocalStage):
    """Gathers columns for a share of all vertices, or their gradients; there are as many shares as intervals."""

    def __init__(self, lane: Lane, stage: Stage, draws: Draws) -> None:
        self._back, self._draws = stage.direction == "backward", draws
        place = stage.phase - 1
        self._gathers = [
            (step, each)
            for step, each in zip(lane.program.gathers[place], lane.gathers[place], strict=True)
            if isinstance(each, ColumnGather)
        ]
        self.scattered = [
            each.slices_backward if self._back else each.slices_forward for _, each in self._gathers
        ]

    def run(self, interval: int, weights: Weights, epoch: int) -> Done:
        draw = self._draws.of(epoch)
        for step, each in self._gathers:
            gather = each.gather_slice_back if self._back else each.gather_slice
            gather(interval, **draw.of(step))
        return Done()


class ColumnStages(StageBehaviour):
    """C(n) stands before G(n), which takes what C(n) of all servers gathered."""

    kind = COLUMNS

    def place(self, program: Program, stages: Iterable[Stage], *, training: bool) -> Iterable[Stage]:
        gathers = enumerate(program.gathers, 1)
        return by_columns(stages, {phase for phase, group in gathers if any(step.slices for step in group)})

    def local(self, lane: Lane, stage: Stage, draws: Draws) -> LocalStage:
        return LocalColumnStage(lane, stage, draws)

    def cost(self, extent: Extent, stage: Stage) -> StageCost:
        return gather_cost(extent, stage, extent.steps(stage))

    def work(self, extent: Extent, stage: Stage) -> Work:
        """Every server goes over all rows and edges, with some of the columns."""
        steps = [slice_step(step) for step in extent.steps(stage)]
        back, servers = stage.direction == "backward", max(step.slices for step in steps)
        found = gather_work(extent, stage, steps)
        return replace(
            found,
            rows=found.rows * servers,
            edges=found.edges * servers,
            streamed=found.streamed * servers,
            ghost_bytes=sum(column_bytes(step, extent, made=True, back=back) for step in extent.steps(stage)),
        )

    def held(self, extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
        if stage.direction == "backward":  # what goes back is held by the same gathers
            return ()
        return tuple(
            each.of(step.out)
            for step in extent.steps(stage)
            for each in held_by_slice(
                step, extent.itemsize, training=extent.training, last=stage.phase == extent.last
            )
        )

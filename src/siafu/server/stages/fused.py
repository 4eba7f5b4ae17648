"""Fused stages: a graph phase and the tensor phase that reads it, in one task: gathered rows need no table."""

from dataclasses import replace

from siafu.pipeline.ids import PhaseId
from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import FUSED, GATHER, TENSOR
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.stage_cost import StageCost
from siafu.server.costs.work import Work
from siafu.server.lane import Lane
from siafu.server.stages.behaviour import LocalStage, StageBehaviour
from siafu.server.stages.draws import Draws
from siafu.server.stages.gather import GatherStages
from siafu.server.stages.tensor import LocalTensorStage, TensorStages

_GATHERS, _TENSORS = GatherStages(), TensorStages()


class FusedStages(StageBehaviour):
    """G(n) with T(n), forth; ∇G(n + 1) with ∇T(n), back; G(n) with the last, which makes the loss or measures.

    The lane gathers: it knows which gathers have no table. What is gathered again on the way back is no stage of its own.
    """

    kind = FUSED

    def local(self, lane: Lane, stage: Stage, draws: Draws) -> LocalStage:
        return LocalTensorStage(lane, stage, draws)

    def cost(self, extent: Extent, stage: Stage) -> StageCost:
        gather, tensor = (
            each.cost(extent, part)
            for each, part in zip((_GATHERS, _TENSORS), parts_of(stage, extent.last), strict=True)
        )
        return replace(
            tensor,
            name=f"{stage.kind.letter}{tensor.name[1:]}" if tensor.name.startswith("T") else str(stage),
            over=gather.over,
            count=gather.count,
            widths_in=(*gather.widths_in, *tensor.widths_in),
            parameters=gather.parameters + tensor.parameters,
            flops=gather.flops + tensor.flops,
            bytes=gather.bytes + tensor.bytes,
            operations=(*gather.operations, *tensor.operations),
            text="\n".join(each.text for each in (gather, tensor) if each.text),
        )

    def work(self, extent: Extent, stage: Stage) -> Work:
        gather, tensor = parts_of(stage, extent.last)
        walked, computed = _GATHERS.work(extent, gather), _TENSORS.work(extent, tensor)
        return replace(
            computed,
            edges=walked.edges,
            products=(*walked.products, *computed.products),
            moved=walked.moved + computed.moved,
            functions=walked.functions + computed.functions,
            row_bytes=walked.row_bytes,
            blocked=walked.blocked,
            heads=walked.heads,
            back=walked.back,
        )

    def held(self, extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
        gather, tensor = parts_of(stage, extent.last)
        tables = [each for each in _GATHERS.held(extent, gather) if not each.passes]
        return (*tables, *_TENSORS.held(extent, tensor))


def parts_of(stage: Stage, last: int) -> tuple[Stage, Stage]:
    """The gather and the tensor phase that a stage is made of."""
    back = stage.direction == "backward" and stage.phase != last
    gather = replace(
        stage,
        kind=GATHER,
        direction="backward" if back else "forward",
        phase=PhaseId(stage.phase + 1) if back else stage.phase,
        scatters=False,
    )
    return gather, replace(stage, kind=TENSOR, reads=())

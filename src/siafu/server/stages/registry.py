"""The kinds of stages that servers can run."""

from collections.abc import Iterable

from siafu.base.errors import SiafuError
from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import StageKind
from siafu.program.program import Program
from siafu.server.stages.behaviour import StageBehaviour
from siafu.server.stages.columns import ColumnStages
from siafu.server.stages.fused import FusedStages
from siafu.server.stages.gather import GatherStages
from siafu.server.stages.tensor import TensorStages

STAGES: dict[str, StageBehaviour] = {
    each.kind.name: each for each in (TensorStages(), GatherStages(), ColumnStages(), FusedStages())
}
"""By the names of their kinds; in this order each puts its stages into a pass."""


def stages_of(kind: StageKind) -> StageBehaviour:
    """How stages of a kind behave."""
    if kind.name not in STAGES:
        raise SiafuError(f"no server can run stages of kind {kind}: it knows {', '.join(STAGES)}")
    return STAGES[kind.name]


def placed(program: Program, stages: Iterable[Stage], *, training: bool) -> Iterable[Stage]:
    """The stages of a pass, tensor phases and gathers in turn, with those of all other kinds among them."""
    for each in STAGES.values():
        stages = each.place(program, stages, training=training)
    return stages

"""Schedule: the stages that an interval passes in one epoch, in order."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from siafu.base.errors import SiafuError
from siafu.pipeline.ids import Direction, PhaseId, StageId


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of an interval's pass: a tensor phase or a gather.

    id:        its place in the schedule
    direction: the way its rows go along the edges. The last tensor phase of a training, which makes the loss and
               its gradient in one task, is `backward`: what it scatters are gradients
    phase:     a tensor stage: T(phase). A gather: G(phase), whose sums T(phase) reads; its backward, ∇G(phase), gives
               them to ∇T(phase - 1)
    scatters:  its rows are read through edges: by gathers of its own and of other intervals
    reads:     a gather: the stages, all earlier and scattering, whose rows it reads; usually one
    gradients: the phases whose parameters it gives gradients for: () or its own
    """

    id: StageId
    kind: Literal["tensor", "gather"]
    direction: Direction
    phase: PhaseId
    scatters: bool = False
    reads: tuple[StageId, ...] = ()
    gradients: tuple[PhaseId, ...] = ()

    def __str__(self) -> str:
        letter = "T" if self.kind == "tensor" else "G"
        return ("∇" if self.direction == "backward" else "") + f"{letter}{self.phase}"


@dataclass(frozen=True)
class Schedule:
    """The stages of one interval's pass, first to last: a training's or an evaluation's."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise SiafuError("a schedule without stages: nothing would ever finish")
        given: set[PhaseId] = set()
        for place, stage in enumerate(self.stages):
            if stage.id != place:
                raise SiafuError(
                    f"stage {stage} is at place {place} of the schedule but has number {stage.id}"
                )
            for source in stage.reads:
                if source >= place or not self.stages[source].scatters:
                    raise SiafuError(f"gather {stage} reads stage {source}, which scatters nothing before it")
            if given & set(stage.gradients):
                raise SiafuError(f"two stages give gradients for phase {stage.phase}: one must")
            given |= set(stage.gradients)
        # The update of an epoch proves that every interval has read every row it needs of that epoch only
        # when no gather comes after the last gradient (see GraphServer: why rows are not overwritten).
        if given and not self.stages[-1].gradients:
            raise SiafuError(f"the last stage, {self.stages[-1]}, gives no gradient: leave it out")

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, stage: int) -> Stage:
        return self.stages[stage]

    @cached_property
    def parameters(self) -> tuple[PhaseId, ...]:
        """The phases that have parameters, in order."""
        return tuple(sorted(phase for stage in self.stages for phase in stage.gradients))


def training_schedule(first: int, last: int, parameters: Collection[int]) -> Schedule:
    """T(first) · G · … · T(last), which makes the loss, and back to the lowest phase that has parameters.

    first: 0, or the first phase that is not folded
    """
    stages = _forward(first, last)
    lowest = min(parameters)
    stages[-1] = Stage(
        id=stages[-1].id,
        kind="tensor",
        direction="backward",
        phase=PhaseId(last),
        scatters=lowest < last,
        gradients=_own(last, parameters),
    )
    for phase in range(last - 1, lowest - 1, -1):
        made = stages[-1].id
        stages.append(Stage(_next(stages), "gather", "backward", PhaseId(phase + 1), reads=(made,)))
        stages.append(
            Stage(
                id=_next(stages),
                kind="tensor",
                direction="backward",
                phase=PhaseId(phase),
                scatters=phase > lowest,
                gradients=_own(phase, parameters),
            )
        )
    return Schedule(tuple(stages))


def evaluation_schedule(first: int, last: int) -> Schedule:
    """T(first) · G · … · T(last), which measures."""
    return Schedule(tuple(_forward(first, last)))


def _forward(first: int, last: int) -> list[Stage]:
    stages: list[Stage] = []
    for phase in range(first, last + 1):
        if stages:
            made = stages[-1].id
            stages.append(Stage(_next(stages), "gather", "forward", PhaseId(phase), reads=(made,)))
        stages.append(Stage(_next(stages), "tensor", "forward", PhaseId(phase), scatters=phase < last))
    return stages


def _next(stages: list[Stage]) -> StageId:
    return StageId(len(stages))


def _own(phase: int, parameters: Collection[int]) -> tuple[PhaseId, ...]:
    return (PhaseId(phase),) if phase in parameters else ()

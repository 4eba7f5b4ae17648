"""Schedule: the stages that an interval passes in one epoch, in order."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from siafu.base.errors import SiafuError
from siafu.pipeline.ids import Direction, PhaseId, StageId
from siafu.pipeline.stage_kind import COLUMNS, FUSED, GATHER, TENSOR, StageKind

_UNPLACED = StageId(-1)


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of an interval's pass: a tensor phase, a gather, or another kind of stage.

    id:        its place in the schedule
    direction: the way its rows go along the edges. The last tensor phase of a training, which makes the loss and
               its gradient in one task, is `backward`: what it scatters are gradients
    phase:     a tensor stage: T(phase). A gather: G(phase), whose sums T(phase) reads; its backward, ∇G(phase), gives
               them to ∇T(phase - 1). Both in one: GT(phase) is G(phase) and T(phase), ∇GT(phase) is ∇G(phase + 1) and
               ∇T(phase); the last, which makes the loss, is G(phase) and ∇T(phase)
    scatters:  its rows are read by others: through edges, by gathers of its own and of other intervals
    everywhere: of one that scatters: every server gets a part of its rows, and who reads them reads those of all intervals
    reads:     a gather: the stages, all earlier and scattering, whose rows it reads; usually one
    gradients: the phases whose parameters it gives gradients for: () or its own; of a gather and a tensor phase, both
    sums:      it gives sums over its rows that every interval of every server reads: statistics, or their gradients
    totals:    the stages whose sums it reads, of all intervals; () or one
    """

    id: StageId
    kind: StageKind = field(hash=False)
    direction: Direction
    phase: PhaseId
    scatters: bool = False
    reads: tuple[StageId, ...] = ()
    gradients: tuple[PhaseId, ...] = ()
    sums: bool = False
    totals: tuple[StageId, ...] = ()
    everywhere: bool = False

    @property
    def sends(self) -> bool:
        """Whether others read what it makes: rows or sums."""
        return self.scatters or self.sums

    def __str__(self) -> str:
        return ("∇" if self.direction == "backward" else "") + f"{self.kind.letter}{self.phase}"


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
            for source in stage.totals:
                if source >= place or not self.stages[source].sums:
                    raise SiafuError(f"{stage} reads sums of stage {source}, which gives none before it")
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


def numbered(stages: Iterable[Stage]) -> Schedule:
    """These stages in this order, with their places.

    One that reads rows reads those of the last stage that scatters; one that reads sums, those of the last that gives any.
    """
    found: list[Stage] = []
    scattered: StageId | None = None
    summed: tuple[StageId, ...] = ()
    for place, stage in enumerate(stages):
        reads = (scattered,) if stage.kind.reads and scattered is not None else ()
        totals = summed if stage.totals else ()
        found.append(replace(stage, id=StageId(place), reads=reads, totals=totals))
        if stage.scatters:
            scattered = StageId(place)
        if stage.sums:
            summed = (StageId(place),)
    return Schedule(tuple(found))


def reducing(
    stages: Iterable[Stage], reduces: Collection[int], gathers: Collection[int], moved: Collection[int]
) -> Iterator[Stage]:
    """The stages of a pass where statistics over all vertices stand between some phases; to be numbered again.

    reduces: T(n) reads statistics of what T(n - 1) made, for these n
    gathers: G(n) runs, for these n; others are no stages
    moved:   those of `reduces` whose gradients ∇T(n - 1) reads
    """
    kept = [stage for stage in stages if stage.kind != GATHER or stage.phase in gathers]
    last = max(stage.phase for stage in kept)
    backward = {stage.phase for stage in kept if stage.kind == TENSOR and stage.direction == "backward"}
    for stage in kept:
        if stage.kind != TENSOR:
            yield stage
            continue
        phase, reads_totals, sums, scatters = stage.phase, False, False, stage.scatters
        if stage.direction == "forward":
            sums = phase + 1 in reduces
            reads_totals = phase in reduces
            scatters = scatters and phase + 1 in gathers
        else:
            sums = phase in moved and phase - 1 in backward
            reads_totals = phase + 1 in moved if phase != last else phase in reduces
            scatters = scatters and phase in gathers
        yield replace(stage, scatters=scatters, sums=sums, totals=(_UNPLACED,) if reads_totals else ())


def by_columns(stages: Iterable[Stage], gathers: Collection[int]) -> Iterator[Stage]:
    """The stages of a pass where some gathers are laid out by columns: C(n) before G(n), for these n; to be numbered again."""
    for stage in stages:
        if stage.kind == GATHER and stage.phase in gathers:
            yield Stage(_UNPLACED, COLUMNS, stage.direction, stage.phase, scatters=True, everywhere=True)
        if stage.kind == TENSOR and stage.scatters:
            read_by = stage.phase + 1 if stage.direction == "forward" else stage.phase
            stage = replace(stage, everywhere=read_by in gathers)
        yield stage


def fuse(stages: Iterable[Stage], depths: Collection[int]) -> Iterator[Stage]:
    """The stages of a pass, where some gathers are one stage with the tensor phase that follows them.

    depths: the gathers, G(1) is 0. One stays as it is where another stage stands between it and that phase, forth or back
    """
    given = list(stages)
    apart = {
        gather.phase - 1
        for gather, follower in zip(given, [*given[1:], None], strict=True)
        if gather.kind == GATHER and not _can_fuse(gather, follower)
    }
    waiting: Stage | None = None
    for stage in given:
        if waiting is not None:
            yield replace(stage, kind=FUSED, gradients=(*waiting.gradients, *stage.gradients))
            waiting = None
        elif stage.kind == GATHER and stage.phase - 1 in set(depths) - apart and stage is not given[-1]:
            waiting = stage
        else:
            yield stage


def _can_fuse(gather: Stage, follower: Stage | None) -> bool:
    if follower is None:  # the last of a pass: it gives nothing but gradients of an edge function
        return gather.direction == "backward"
    phase = gather.phase if gather.direction == "forward" else gather.phase - 1
    return follower.kind == TENSOR and follower.phase == phase


def fused_gathers(stages: Sequence[Stage]) -> frozenset[int]:
    """The gathers that are one stage with a tensor phase; G(1) is 0."""
    last = max(stage.phase for stage in stages)
    return frozenset(
        stage.phase - 1
        for stage in stages
        if stage.kind == FUSED and (stage.direction == "forward" or stage.phase == last)
    )


def training_schedule(first: int, last: int, parameters: Collection[int]) -> Schedule:
    """T(first) · G · … · T(last), which makes the loss, and back to the deepest stage that has parameters.

    first:      0, or the first phase that is not folded
    parameters: of tensor phases by their number; those of G(n), where an edge function has some, count as phase last + n
    """
    forward = list(_forward(first, last))[:-1]
    backward = [
        replace(stage, gradients=(owner,) if owner in parameters else ())
        for stage, owner in _backward(first, last)
    ]
    while not backward[-1].gradients:
        backward.pop()
    backward[-1] = replace(backward[-1], scatters=False)
    return numbered([*forward, *backward])


def evaluation_schedule(first: int, last: int) -> Schedule:
    """T(first) · G · … · T(last), which measures."""
    return numbered(_forward(first, last))


def gather_parameters(phase: int, last: int) -> PhaseId:
    """The number by which the parameters of gather G(phase) go: after those of the tensor phases, up to `last`."""
    return PhaseId(last + phase)


def _forward(first: int, last: int) -> Iterator[Stage]:
    for phase in range(first, last + 1):
        if phase > first:
            yield Stage(_UNPLACED, GATHER, "forward", PhaseId(phase))
        yield Stage(_UNPLACED, TENSOR, "forward", PhaseId(phase), scatters=phase < last)


def _backward(first: int, last: int) -> Iterator[tuple[Stage, PhaseId]]:
    """All stages that go back, and the number by which the parameters of each go."""
    for phase in range(last, first - 1, -1):
        stage = Stage(_UNPLACED, TENSOR, "backward", PhaseId(phase), scatters=phase > first)
        yield stage, stage.phase
        if phase > first:
            yield Stage(_UNPLACED, GATHER, "backward", PhaseId(phase)), gather_parameters(phase, last)

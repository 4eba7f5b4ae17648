"""From a program to the stages that an interval passes, and to who learns which weights."""

from collections.abc import Collection, Iterable, Iterator

from siafu.pipeline.ids import PhaseId
from siafu.pipeline.schedule import (
    Schedule,
    Stage,
    evaluation_schedule,
    fuse,
    gather_parameters,
    numbered,
    reducing,
    training_schedule,
)
from siafu.program.program import Program
from siafu.server.fusion import fusable
from siafu.server.stages.registry import placed

Groups = dict[PhaseId, tuple[str, ...]]
"""The parameters that are updated together, by the phase that gives their gradients. A gather whose edge function
has weights counts as a phase of its own, numbered after the tensor phases."""


def schedule_evaluation(program: Program, fused: Collection[int] = ()) -> Schedule:
    """T0 · G1 · T1 · … · T(last), which measures, and what other kinds of stages put between them.

    fused: gathers, by place, to be one stage with the tensor phase that follows, where that can be
    """
    spine = evaluation_schedule(0, len(program.phases) - 1)
    stages = placed(program, _with_reduces(program, spine.stages), training=False)
    return numbered(fuse(stages, fusable(program, fused)))


def schedule_training(program: Program, fused: Collection[int] = ()) -> tuple[Schedule, Groups]:
    """T0 · G1 · … · T(last), which makes the loss, and back as far as something is learnt; other kinds between them.

    fused: as for an evaluation
    """
    groups = groups_of(program)
    spine = training_schedule(0, len(program.phases) - 1, groups)
    stages = placed(program, _with_reduces(program, spine.stages), training=True)
    return numbered(fuse(stages, fusable(program, fused))), groups


def groups_of(program: Program) -> Groups:
    """A parameter that several stages give gradients for belongs to the last of them, when its gradient is complete."""
    group_of = {name: group for group, names in _learning(program) for name in names}
    groups: Groups = {}
    for name, group in group_of.items():
        groups[group] = (*groups.get(group, ()), name)
    return groups


def running_names(program: Program) -> frozenset[str]:
    """Buffers that follow statistics: updated as weights are, by another rule."""
    steps = (step for group in program.reduces for step in group)
    return frozenset(name for step in steps if step.running is not None for name in step.running.names)


def _with_reduces(program: Program, stages: Iterable[Stage]) -> Iterable[Stage]:
    reduces = {phase for phase, group in enumerate(program.reduces, 1) if group}
    if not reduces:
        return stages
    moved = {
        phase for phase, group in enumerate(program.reduces, 1) if any(step.differentiated for step in group)
    }
    gathers = {phase for phase, group in enumerate(program.gathers, 1) if group}
    return reducing(stages, reduces, gathers, moved)


def _learning(program: Program) -> Iterator[tuple[PhaseId, tuple[str, ...]]]:
    """The weights that each stage that goes back gives gradients for, by the number they go by, last phase first."""
    last = len(program.phases) - 1
    for phase in range(last, -1, -1):
        yield PhaseId(phase), program.phases[phase].learnt
        for reduce in program.reduces[phase - 1] if phase else ():
            yield PhaseId(phase), () if reduce.running is None else reduce.running.names
        if phase > 0:
            for step in program.gathers[phase - 1]:
                yield gather_parameters(phase, last), step.learnt

"""From a program to the stages that an interval passes, and to who learns which weights."""

from collections.abc import Iterator
from dataclasses import replace

from siafu.pipeline.ids import Direction, PhaseId, StageId
from siafu.pipeline.schedule import Schedule, Stage
from siafu.program.program import Program

Groups = dict[PhaseId, tuple[str, ...]]
"""The parameters that are updated together, by the phase that gives their gradients. A gather whose edge function
has weights counts as a phase of its own, numbered after the tensor phases."""


def evaluation_schedule(program: Program) -> Schedule:
    """T0 · G1 · T1 · … · T(last), which measures."""
    last = len(program.phases) - 1
    return _numbered([*_forward(program), Stage(StageId(0), "tensor", "forward", PhaseId(last))])


def training_schedule(program: Program) -> tuple[Schedule, Groups]:
    """T0 · G1 · … · T(last), which makes the loss, and back as far as something is learnt.

    A parameter that several stages give gradients for belongs to the last of them, when its gradient is complete.
    """
    last = len(program.phases) - 1
    learning = list(_learning(program))
    wanted = max(place for place, (_, names) in enumerate(learning) if names)
    learning = learning[: wanted + 1]
    group_of = {name: _group(stage, last) for stage, names in learning for name in names}
    groups: Groups = {}
    for name, group in group_of.items():
        groups[group] = (*groups.get(group, ()), name)
    backward = [
        replace(stage, gradients=(_group(stage, last),) if _group(stage, last) in groups else ())
        for stage, _ in learning
    ]
    backward[-1] = replace(backward[-1], scatters=False)
    return _numbered([*_forward(program), *backward]), groups


def _forward(program: Program) -> Iterator[Stage]:
    for phase in range(len(program.phases) - 1):
        yield Stage(StageId(0), "tensor", "forward", PhaseId(phase), scatters=True)
        yield Stage(StageId(0), "gather", "forward", PhaseId(phase + 1))


def _learning(program: Program) -> Iterator[tuple[Stage, tuple[str, ...]]]:
    """The stages that go back, and the weights that each gives gradients for."""
    direction: Direction = "backward"
    for phase in range(len(program.phases) - 1, -1, -1):
        learnt = program.phases[phase].learnt
        yield Stage(StageId(0), "tensor", direction, PhaseId(phase), scatters=phase > 0), learnt
        if phase > 0:
            on_edges = tuple(
                dict.fromkeys(name for step in program.gathers[phase - 1] for name in step.learnt)
            )
            yield Stage(StageId(0), "gather", direction, PhaseId(phase)), on_edges


def _group(stage: Stage, last: int) -> PhaseId:
    return stage.phase if stage.kind == "tensor" else PhaseId(last + stage.phase)


def _numbered(stages: list[Stage]) -> Schedule:
    """With their places, and each gather reading the stage before it."""
    return Schedule(
        tuple(
            replace(stage, id=StageId(place), reads=(StageId(place - 1),) if stage.kind == "gather" else ())
            for place, stage in enumerate(stages)
        )
    )

"""RemotePhases: a lane's tensor tasks computed elsewhere: what goes out for them, and what becomes of what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from siafu.pipeline.schedule import Stage
from siafu.program.phase_programs import PhasePrograms
from siafu.program.program import TensorPhase
from siafu.program.tensor_program import TensorProgram
from siafu.program.trace.split import split_backward, split_forward, split_last
from siafu.server.lane import Done, Lane


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """How tensor tasks are cut and what they send.

    rematerialise: the backward pass computes the forward pass again: what would be kept need not travel
    fused:         all that lies between two gathers is one task; else it is two, one after the other
    stash:         whoever computes the forward pass may keep what the backward pass would compute again
    """

    rematerialise: bool = True
    fused: bool = True
    stash: bool = True


@dataclass(frozen=True, slots=True)
class StashProgram:
    """Another program for a task: `names` are what it makes or reads in a forward pass, and reads in the backward pass."""

    program: TensorProgram
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TaskInputs:
    """A tensor task as data: its programs and all that they read but the weights.

    programs: to be run one after the other; each reads the inputs and what those before it made
    rows:     how many
    inputs:   by the programs' names, all that they read but the weights; they do not change until the task is done
    constants: the inputs that are the same in every epoch, forward and backward
    leaves:   what else to run where the backward task of the same rows and epoch may find what it made
    finds:    what to run instead where the forward task has left that
    """

    programs: tuple[TensorProgram, ...]
    rows: int
    inputs: dict[str, Tensor]
    constants: tuple[str, ...] = ()
    leaves: StashProgram | None = None
    finds: StashProgram | None = None


class RemotePhases:
    """The tensor tasks of a lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._last = len(lane.program.phases) - 1
        self._made_up: dict[tuple[int, str, TaskSettings], tuple[TensorProgram, ...]] = {}

    def task_inputs(
        self, stage: Stage, interval: int, key: Tensor, settings: TaskSettings, *, training: bool
    ) -> TaskInputs:
        """Programs and inputs of a stage of an interval."""
        lane, block, phase = self._lane, self._lane.whole(interval), stage.phase
        if phase == self._last:
            given = _rows(lane.labelled_inputs(interval, block), lane.labelled_ids(block), key)
            given |= {"y": block.y} if training else {}
        else:
            given = _rows(lane.dense_inputs(phase, interval, block), lane.ids(block), key)
            if stage.direction == "backward":
                given |= _numbered("gradient", lane.output_gradients(phase, interval, block))
                if not settings.rematerialise:
                    given |= _numbered("kept", lane.kept(phase, interval, block))
                    outputs = lane.reread_outputs(phase, interval, block)
                    given |= {f"output/{k}": each for k, each in outputs.items()}
        given |= {f"total/{name}": each for name, each in lane.statistics.totals(phase, interval).items()}
        programs = self._programs(stage, settings, training=training)
        read = {name for each in programs for name in each.input_names}
        constants = self._constants(phase) & read
        # What never changes is copied only where it is sent.
        inputs = {
            name: each if name in constants else each.contiguous()
            for name, each in given.items()
            if name in read
        }
        stashing = (
            training and phase != self._last and settings.rematerialise and settings.fused and settings.stash
        )
        stash = _stash_program(lane.program.phases[phase].programs, stage, constants) if stashing else None
        leaves, finds = (stash, None) if stage.direction == "forward" else (None, stash)
        return TaskInputs(programs, len(given["vertices"]), inputs, tuple(sorted(constants)), leaves, finds)

    def _constants(self, phase: int) -> set[str]:
        if phase == self._last:
            return set()
        inputs = self._lane.program.phases[phase].inputs
        return {"vertices"} | {f"rows/{k}" for k, name in enumerate(inputs) if self._lane.is_constant(name)}

    def finish(self, stage: Stage, interval: int, outputs: Mapping[str, Tensor], *, training: bool) -> Done:
        """Put the outputs of a task where they belong, by the programs' names."""
        lane, block = self._lane, self._lane.whole(interval)
        phase = lane.program.phases[stage.phase]
        if stage.phase == self._last and not training:
            return lane.tallied(block, outputs["output/0"])
        if stage.phase == self._last:
            lane.put_last_gradients(interval, block, _of_rows(phase, outputs))
            gradients = lane.statistics.settled(stage.phase, interval, _of_weights(phase, outputs))
            return Done(gradients, (outputs["loss"].item(),))
        if stage.direction == "forward":
            kept = sum(name.startswith("kept/") for name in outputs)
            lane.put_kept(stage.phase, interval, block, [outputs[f"kept/{k}"] for k in range(kept)])
            made = [outputs[f"output/{k}"] for k in range(len(phase.outputs))]
            lane.put_outputs(stage.phase, interval, block, made)
            lane.end_forward(stage.phase, interval)
            return Done()
        lane.put_gradients(stage.phase, interval, block, _of_rows(phase, outputs))
        lane.send_back_unread(stage.phase, interval, block)
        lane.end_backward(stage.phase, interval)
        return Done(lane.statistics.settled(stage.phase, interval, _of_weights(phase, outputs)))

    def _programs(self, stage: Stage, settings: TaskSettings, *, training: bool) -> tuple[TensorProgram, ...]:
        """What a stage runs: worked out once."""
        name = stage.phase, stage.direction, settings
        if name not in self._made_up:
            programs = self._lane.program.phases[stage.phase].programs
            if stage.phase == self._last:
                self._made_up[name] = _at_the_end(programs, settings, training=training)
            elif stage.direction == "forward":
                self._made_up[name] = _forward(programs, settings, training=training)
            else:
                self._made_up[name] = _backward(programs, settings)
        return self._made_up[name]


def _forward(programs: PhasePrograms, settings: TaskSettings, *, training: bool) -> tuple[TensorProgram, ...]:
    keeps = training and not settings.rematerialise
    whole = programs.forward_keeping if keeps else programs.forward
    return (None if settings.fused else split_forward(whole)) or (whole,)


def _backward(programs: PhasePrograms, settings: TaskSettings) -> tuple[TensorProgram, ...]:
    whole = programs.backward if settings.rematerialise else programs.backward_kept
    assert whole is not None, "a stage has a program"
    return (None if settings.fused else split_backward(whole)) or (whole,)


def _stash_program(programs: PhasePrograms, stage: Stage, constants: set[str]) -> StashProgram | None:
    """None: a backward pass has nothing to gain from its forward pass."""
    if programs.backward is None or programs.backward_kept is None:
        return None
    keeping = programs.forward_keeping
    came = {name for name in keeping.input_names if name.startswith("rows/")} - constants
    there = came | set(keeping.output_names)
    names = tuple(name for name in programs.backward_kept.input_names if name in there)
    forward = stage.direction == "forward"
    return (
        StashProgram(programs.forward_keeping if forward else programs.backward_kept, names)
        if names
        else None
    )


def _at_the_end(
    programs: PhasePrograms, settings: TaskSettings, *, training: bool
) -> tuple[TensorProgram, ...]:
    whole = programs.last if training else programs.forward
    assert whole is not None, "a training ends in a loss"
    return (split_last(whole, programs.forward) if training and not settings.fused else None) or (whole,)


def _rows(rows: Sequence[Tensor], vertices: Tensor, key: Tensor) -> dict[str, Tensor]:
    return _numbered("rows", rows) | {"vertices": vertices, "key": key}


def _numbered(what: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"{what}/{k}": each for k, each in enumerate(tensors)}


def _of_rows(phase: TensorPhase, outputs: Mapping[str, Tensor]) -> list[Tensor]:
    return [outputs[f"grad/rows/{phase.inputs.index(name)}"] for name in phase.differentiated]


def _of_weights(phase: TensorPhase, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    weights = {name: outputs[f"grad/weight/{name}"] for name in phase.learnt}
    return weights | {name: outputs[f"grad/total/{name}"] for name in phase.moved}

"""RemotePhases: a lane's tensor tasks computed elsewhere: what goes out for them, and what becomes of what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from siafu.pipeline.schedule import Stage
from siafu.program.program import TensorPhase
from siafu.program.tensor_program import TensorProgram
from siafu.server.lane import Done, Lane, tallies_of_block


@dataclass(frozen=True, slots=True, eq=False)
class TensorJob:
    """A tensor task as data.

    rows:    how many
    inputs:  by the program's names, all that it reads but the weights; they do not change until the task is done
    """

    program: TensorProgram
    rows: int
    inputs: dict[str, Tensor]


class RemotePhases:
    """The tensor tasks of a lane. The backward pass computes the forward pass again: what is kept need not travel."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._last = len(lane.program.phases) - 1

    def job(self, stage: Stage, interval: int, key: Tensor, *, training: bool) -> TensorJob:
        """What to compute for a stage of an interval."""
        lane, block = self._lane, self._lane.whole(interval)
        programs = lane.program.phases[stage.phase].programs
        if stage.phase == self._last:
            given = _rows(lane.labelled_inputs(interval, block), lane.labelled_ids(block), key)
            program = programs.last if training else programs.forward
            given |= {"y": block.y} if training else {}
        else:
            given = _rows(lane.inputs(stage.phase, interval, block), lane.ids(block), key)
            program = programs.forward if stage.direction == "forward" else programs.backward
            if stage.direction == "backward":
                gradients = lane.output_gradients(stage.phase, interval, block)
                given |= {f"gradient/{k}": each for k, each in enumerate(gradients)}
        assert program is not None, "a stage has a program"
        inputs = {name: given[name].contiguous() for name in program.input_names if name in given}
        return TensorJob(program, len(given["vertices"]), inputs)

    def finish(self, stage: Stage, interval: int, outputs: Mapping[str, Tensor], *, training: bool) -> Done:
        """Take what a job gave, by the program's names."""
        lane, block = self._lane, self._lane.whole(interval)
        phase = lane.program.phases[stage.phase]
        if stage.phase == self._last and not training:
            return Done(tallies=tallies_of_block(block, outputs["output/0"]))
        if stage.phase == self._last:
            lane.put_last_gradients(interval, block, _of_rows(phase, outputs))
            return Done(_of_weights(phase, outputs), outputs["loss"].item())
        if stage.direction == "forward":
            made = [outputs[f"output/{k}"] for k in range(len(phase.outputs))]
            lane.put_outputs(stage.phase, interval, block, made)
            return Done()
        lane.put_gradients(stage.phase, interval, block, _of_rows(phase, outputs))
        lane.end_backward(stage.phase, interval)
        return Done(_of_weights(phase, outputs))


def _rows(rows: Sequence[Tensor], vertices: Tensor, key: Tensor) -> dict[str, Tensor]:
    return {f"rows/{k}": each for k, each in enumerate(rows)} | {"vertices": vertices, "key": key}


def _of_rows(phase: TensorPhase, outputs: Mapping[str, Tensor]) -> list[Tensor]:
    return [outputs[f"grad/rows/{phase.inputs.index(name)}"] for name in phase.differentiated]


def _of_weights(phase: TensorPhase, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: outputs[f"grad/weight/{name}"] for name in phase.learnt}

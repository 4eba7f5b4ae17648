"""PhaseRunner: a tensor phase's programs, run with torch on the rows of one interval."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.program import TensorPhase
from siafu.program.tensor_program import RowCount, Spec, TensorProgram
from siafu.server.named_executor import NamedExecutor

Weights = Mapping[str, Tensor]
RowsIn = Tensor | SparseRows


class PhaseRunner:
    """Rows in, rows out. Everything given is read only. Statistics over all vertices are given among the weights.

    keeps: forward keeps what backward would need a product for; else backward computes it again

    reads_inputs:  which of the phase's inputs the backward pass reads, by position
    reads_outputs: which of the phase's outputs the backward pass reads, by position
    kept_shapes:   of a row of what forward keeps
    """

    def __init__(self, phase: TensorPhase, *, training: bool, keeps: bool = True) -> None:
        programs = phase.programs
        self._weights = [(f"weight/{name}", name) for name in phase.weights]
        self._weights += [(f"total/{name}", name) for name in phase.totals]
        self._learnt = [(f"grad/weight/{name}", name) for name in phase.learnt]
        self._learnt += [(f"grad/total/{name}", name) for name in phase.moved]
        self._differentiated = [phase.inputs.index(name) for name in phase.differentiated]
        self._outputs = len(phase.outputs)
        keeps = keeps and training
        self._forward = _executor(programs.forward_keeping if keeps else programs.forward)
        backward = programs.backward_kept if keeps else programs.backward
        self._backward = _executor(backward) if training else None
        self._last = _executor(programs.last)
        self.kept_shapes = [_row_shape(spec) for spec in programs.kept] if keeps else []
        self.reads_inputs = _read_inputs(phase, backward) if training else []
        self.reads_outputs = reread_outputs(phase) if keeps else []

    def forward(
        self, rows: Sequence[RowsIn], weights: Weights, vertices: Tensor, key: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What the phase gives, and what its backward pass wants kept."""
        assert self._forward is not None
        found = self._forward(self._inputs(dict(enumerate(rows)), weights, vertices, key))
        outputs = [found[f"output/{k}"] for k in range(self._outputs)]
        return outputs, [found[f"kept/{k}"] for k in range(len(self.kept_shapes))]

    def backward(
        self,
        rows: Mapping[int, RowsIn],
        outputs: Mapping[int, Tensor],
        kept: Sequence[Tensor],
        weights: Weights,
        vertices: Tensor,
        key: Tensor,
        gradients: Sequence[Tensor],
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The gradients of the differentiated inputs, and of the learnt weights by name.

        rows: the inputs that `reads_inputs` names, by position; outputs: likewise
        """
        if self._backward is None:  # the phase has no rows of its own: one gather follows another
            return [], {}
        inputs = self._inputs(rows, weights, vertices, key)
        inputs |= {f"output/{k}": each for k, each in outputs.items()}
        inputs |= {f"kept/{k}": each for k, each in enumerate(kept)}
        inputs |= {f"gradient/{k}": each for k, each in enumerate(gradients)}
        return self._gradients(self._backward(inputs))

    def last(
        self, rows: Sequence[RowsIn], weights: Weights, vertices: Tensor, key: Tensor, y: Tensor
    ) -> tuple[float, list[Tensor], dict[str, Tensor]]:
        """The loss of these rows, and gradients as `backward` gives them."""
        assert self._last is not None
        found = self._last(self._inputs(dict(enumerate(rows)), weights, vertices, key) | {"y": y})
        return found["loss"].item(), *self._gradients(found)

    def _inputs(
        self, rows: Mapping[int, RowsIn], weights: Weights, vertices: Tensor, key: Tensor
    ) -> dict[str, RowsIn]:
        inputs: dict[str, RowsIn] = {f"rows/{k}": each for k, each in rows.items()}
        for input_name, name in self._weights:
            inputs[input_name] = weights[name]
        inputs["vertices"], inputs["key"] = vertices, key
        return inputs

    def _gradients(self, found: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        of_rows = [found[f"grad/rows/{k}"] for k in self._differentiated]
        return of_rows, {name: found[output] for output, name in self._learnt}


def _row_shape(spec: Spec) -> tuple[int, ...]:
    return tuple(size.times if isinstance(size, RowCount) else size for size in spec.shape)


def _executor(program: TensorProgram | None) -> NamedExecutor | None:
    return None if program is None else NamedExecutor(program)


def inputs_read_back(phase: TensorPhase, *, keeps: bool) -> set[str]:
    """Names of the rows that the backward pass of a phase reads again; keeps: as for a runner."""
    program = phase.programs.backward_kept if keeps else phase.programs.backward
    return {phase.inputs[k] for k in _read_inputs(phase, program)}


def _read_inputs(phase: TensorPhase, program: TensorProgram | None) -> list[int]:
    """Which of a phase's inputs a program of it reads, by position."""
    names = program.input_names if program else ()
    return [k for k in range(len(phase.inputs)) if f"rows/{k}" in names]


def reread_outputs(phase: TensorPhase) -> list[int]:
    """Which of a phase's outputs its backward pass reads, by position."""
    backward = phase.programs.backward_kept
    read = backward.input_names if backward else ()
    return [k for k in range(len(phase.outputs)) if f"output/{k}" in read]

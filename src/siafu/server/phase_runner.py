"""PhaseRunner: a tensor phase's programs, run with torch on the rows of one interval."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.program import TensorPhase
from siafu.program.tensor_program import RowCount, Spec, TensorProgram

Weights = Mapping[str, Tensor]
RowsIn = Tensor | SparseRows


class PhaseRunner:
    """Rows in, rows out. Everything given is read only. Statistics over all vertices are given among the weights.

    keeps: forward keeps what backward would need a product for; else backward computes it again

    reads_inputs:  which of the phase's inputs the backward pass reads, by position
    reads_outputs: which of the phase's outputs the backward pass reads, by position
    kept_shapes:   of a row of what forward keeps
    of_vertices:   names of the weights that have a row for each vertex: given whole, read in the rows of `vertices`,
                   whose gradients come back
    """

    def __init__(self, phase: TensorPhase, *, training: bool, keeps: bool = True) -> None:
        programs = phase.programs
        keeps = keeps and training
        backward = programs.backward_kept if keeps else programs.backward
        self.kept_shapes = [_row_shape(spec) for spec in programs.kept] if keeps else []
        self.reads_inputs = _read_inputs(phase, backward) if training else []
        self.reads_outputs = reread_outputs(phase) if keeps else []
        outputs = [f"output/{k}" for k in range(len(phase.outputs))]
        kept = [f"kept/{k}" for k in range(len(self.kept_shapes))]
        of_rows = [f"grad/rows/{phase.inputs.index(name)}" for name in phase.differentiated]
        of_weights = [f"grad/weight/{name}" for name in phase.learnt]
        of_weights += [f"grad/total/{name}" for name in phase.moved]
        self._learnt = (*phase.learnt, *phase.moved)
        self.of_vertices = programs.of_vertices
        self._forward = _positioned(programs.forward_keeping if keeps else programs.forward, outputs, kept)
        self._backward = _positioned(backward if training else None, of_rows, of_weights)
        self._last = _positioned(programs.last, ["loss"], of_rows, of_weights)

    def forward(
        self, rows: Sequence[RowsIn], weights: Weights, vertices: Tensor, key: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What the phase gives, and what its backward pass wants kept."""
        assert self._forward is not None
        weights = self._picked(weights, vertices)
        outputs, kept = self._forward({"rows": rows, "weight": weights, "own": (vertices, key)})
        return outputs, kept

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
        of_rows, of_weights = self._backward(
            {
                "rows": rows,
                "output": outputs,
                "kept": kept,
                "weight": self._picked(weights, vertices),
                "own": (vertices, key),
                "gradient": gradients,
            }
        )
        return of_rows, self._named(of_weights, weights)

    def last(
        self, rows: Sequence[RowsIn], weights: Weights, vertices: Tensor, key: Tensor, y: Tensor
    ) -> tuple[float, list[Tensor], dict[str, Tensor]]:
        """The loss of these rows, and gradients as `backward` gives them."""
        assert self._last is not None
        weights = self._picked(weights, vertices)
        given = {"rows": rows, "weight": weights, "own": (vertices, key, y)}
        (loss,), of_rows, of_weights = self._last(given)
        return loss.item(), of_rows, self._named(of_weights, weights)

    def _named(self, gradients: Sequence[Tensor], weights: Weights) -> dict[str, Tensor]:
        """Gradients by name. Where nothing but zeros comes out, a program does not know in which precision."""
        return {
            name: gradient.to(weights[name].dtype)
            for name, gradient in zip(self._learnt, gradients, strict=True)
        }

    def _picked(self, weights: Weights, vertices: Tensor) -> Weights:
        if not self.of_vertices:
            return weights
        return {**weights, **{name: weights[name].index_select(0, vertices) for name in self.of_vertices}}


_OWN = {"vertices": 0, "key": 1, "y": 2}


class _Positioned:
    """A program whose inputs and outputs are found by position: names are looked up once, not with every task.

    groups: names of outputs that are wanted together
    """

    def __init__(self, program: TensorProgram, groups: Sequence[Sequence[str]]) -> None:
        self._execute = TorchExecutor(program)
        self._inputs = [_place(name) for name in program.input_names]
        position = {name: k for k, name in enumerate(program.output_names)}
        self._groups = [[position[name] for name in names] for names in groups]

    def __call__(self, given: Mapping[str, Any]) -> list[list[Tensor]]:
        """given: inputs by kind, each by position or name"""
        rows = len(given["own"][0])  # a program may make rows and read none
        found = self._execute.run([given[kind][key] for kind, key in self._inputs], rows)
        return [[found[k] for k in places] for places in self._groups]


def _place(name: str) -> tuple[str, int | str]:
    """Kind of an input, and its place among those of that kind."""
    if name in _OWN:
        return "own", _OWN[name]
    kind, key = name.split("/", 1)
    return ("weight", key) if kind in ("weight", "total") else (kind, int(key))


def _positioned(program: TensorProgram | None, *groups: Sequence[str]) -> _Positioned | None:
    return None if program is None else _Positioned(program, groups)


def _row_shape(spec: Spec) -> tuple[int, ...]:
    return tuple(size.times if isinstance(size, RowCount) else size for size in spec.shape)


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

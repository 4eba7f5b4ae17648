"""PhaseRunner: a tensor phase's programs, run with torch on the rows of one interval."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from siafu.program.program import TensorPhase
from siafu.program.tensor_program import Rows, Spec, TensorProgram
from siafu.server.named_executor import NamedExecutor

Weights = Mapping[str, Tensor]


class PhaseRunner:
    """Rows in, rows out. Everything given is read only.

    reads_outputs: which of the phase's outputs the backward pass reads, by position
    kept_shapes:   of a row of what forward keeps
    """

    def __init__(self, phase: TensorPhase, *, training: bool) -> None:
        programs = phase.programs
        self._weights = phase.weights
        self._learnt = phase.learnt
        self._differentiated = [phase.inputs.index(name) for name in phase.differentiated]
        self._outputs = len(phase.outputs)
        self._forward = _executor(programs.forward_keeping if training else programs.forward)
        self._backward = _executor(programs.backward_kept) if training else None
        self._last = _executor(programs.last)
        self.kept_shapes = [_row_shape(spec) for spec in programs.kept] if training else []
        read = programs.backward_kept.input_names if training and programs.backward_kept else ()
        self.reads_outputs = [k for k in range(self._outputs) if f"output/{k}" in read]

    def forward(
        self, rows: Sequence[Tensor], weights: Weights, vertices: Tensor, key: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What the phase gives, and what its backward pass wants kept."""
        assert self._forward is not None
        found = self._forward(self._inputs(rows, weights, vertices, key))
        outputs = [found[f"output/{k}"] for k in range(self._outputs)]
        return outputs, [found[f"kept/{k}"] for k in range(len(self.kept_shapes))]

    def backward(
        self,
        rows: Sequence[Tensor],
        outputs: Mapping[int, Tensor],
        kept: Sequence[Tensor],
        weights: Weights,
        vertices: Tensor,
        key: Tensor,
        gradients: Sequence[Tensor],
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The gradients of the differentiated inputs, and of the learnt weights by name."""
        if self._backward is None:  # the phase has no rows of its own: one gather follows another
            return [], {}
        inputs = self._inputs(rows, weights, vertices, key)
        inputs |= {f"output/{k}": each for k, each in outputs.items()}
        inputs |= {f"kept/{k}": each for k, each in enumerate(kept)}
        inputs |= {f"gradient/{k}": each for k, each in enumerate(gradients)}
        return self._gradients(self._backward(inputs))

    def last(
        self, rows: Sequence[Tensor], weights: Weights, vertices: Tensor, key: Tensor, y: Tensor
    ) -> tuple[float, list[Tensor], dict[str, Tensor]]:
        """The loss of these rows, and gradients as `backward` gives them."""
        assert self._last is not None
        found = self._last(self._inputs(rows, weights, vertices, key) | {"y": y})
        return found["loss"].item(), *self._gradients(found)

    def _inputs(
        self, rows: Sequence[Tensor], weights: Weights, vertices: Tensor, key: Tensor
    ) -> dict[str, Tensor]:
        inputs = {f"rows/{k}": each for k, each in enumerate(rows)}
        inputs |= {f"weight/{name}": weights[name] for name in self._weights}
        return inputs | {"vertices": vertices, "key": key}

    def _gradients(self, found: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        of_rows = [found[f"grad/rows/{k}"] for k in self._differentiated]
        return of_rows, {name: found[f"grad/weight/{name}"] for name in self._learnt}


def _row_shape(spec: Spec) -> tuple[int, ...]:
    return tuple(size.times if isinstance(size, Rows) else size for size in spec.shape)


def _executor(program: TensorProgram | None) -> NamedExecutor | None:
    return None if program is None else NamedExecutor(program)

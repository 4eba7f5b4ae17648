"""PhasePrograms: the tensor programs of one tensor phase."""

from dataclasses import dataclass

from siafu.program.tensor_program import RowCount, Spec, TensorProgram


@dataclass(frozen=True, slots=True)
class PhasePrograms:
    """A phase's programs. Inputs that a program does not read are not among its inputs.

    Inputs:  rows/0, rows/1, …   weight/NAME   total/NAME   vertices   key   y   gradient/0, … (of the outputs)   kept/0, …
    Outputs: output/0, …   kept/0, …   loss   grad/rows/0, … (those differentiated)   grad/weight/NAME (those learnt)   grad/total/NAME (those moved)

    forward:         outputs
    forward_keeping: outputs, then kept: what the backward pass would otherwise need a matrix product for
    backward:        gradients, by computing the forward pass again; None: nothing is differentiated, or has_loss
    backward_kept:   the same, from what was kept; it may read output/0, … as well, where that saves a product
    last:            loss and gradients in one; None: no loss was given
    """

    forward: TensorProgram
    forward_keeping: TensorProgram
    backward: TensorProgram | None
    backward_kept: TensorProgram | None
    last: TensorProgram | None

    @property
    def of_vertices(self) -> frozenset[str]:
        """Names of the weights that have a row for each vertex: a program gets those of its rows."""
        every = (self.forward, self.backward, self.last)
        inputs = [each for program in every if program is not None for each in program.inputs]
        return frozenset(
            name.removeprefix("weight/")
            for name, spec in inputs
            if name.startswith("weight/") and spec.shape and isinstance(spec.shape[0], RowCount)
        )

    @property
    def kept(self) -> tuple[Spec, ...]:
        """Kinds and shapes of kept/0, …."""
        specs = self.forward_keeping.specs
        found = (specs[number] for name, number in self.forward_keeping.outputs if name.startswith("kept/"))
        return tuple(spec for spec in found if spec is not None)

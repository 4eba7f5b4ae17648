"""Half products: a tensor program whose matrix products are of bfloat16, as PyTorch's autocast takes them.

Processors with instructions for bfloat16 multiply twice as many of them. Each value is rounded once, however many products
read it. What comes out of a product is rounded as well, and is a float again: everything else is computed as before.
"""

from dataclasses import replace

from siafu.program.phase_programs import PhasePrograms
from siafu.program.tensor_program import Op, Ref, Spec, TensorProgram, renumbered, results_of

_HALF = {"mm": "half_mm", "addmm": "half_addmm"}


def half_phase(programs: PhasePrograms) -> PhasePrograms:
    """All programs of a phase with half products."""
    backward, kept, last = (
        None if each is None else half_products(each)
        for each in (programs.backward, programs.backward_kept, programs.last)
    )
    forward, keeping = half_products(programs.forward), half_products(programs.forward_keeping)
    return PhasePrograms(forward, keeping, backward, kept, last)


def half_products(program: TensorProgram) -> TensorProgram:
    """`program` with products of bfloat16."""
    rounding = _Rounding(program)
    for op, given in zip(program.ops, results_of(len(program.inputs), program.ops), strict=True):
        rounding.copy(op, given)
    outputs = tuple((name, rounding.new[number]) for name, number in program.outputs)
    return TensorProgram(program.inputs, tuple(rounding.ops), outputs)


class _Rounding:
    """A program while it is written anew.

    new: the new number of each value, by its old one
    """

    def __init__(self, program: TensorProgram) -> None:
        self.ops: list[Op] = []
        self.new = {number: number for number in range(len(program.inputs))}
        self._old, self._count = program, len(program.inputs)
        self._moved = {
            given[0]: op
            for op, given in zip(program.ops, results_of(len(program.inputs), program.ops), strict=True)
            if op.name == "permute"
        }
        self._half: dict[int, int] = {}

    def copy(self, op: Op, given: range) -> None:
        """Write an operation, which gave values of these old numbers."""
        if op.name in _HALF:
            *bias, left, right = op.arguments
            halves = (Ref(self._halved(each.number)) for each in (left, right))
            op = Op(_HALF[op.name], (*renumbered(tuple(bias), self.new), *halves), op.results)
        else:
            op = replace(op, arguments=renumbered(op.arguments, self.new))
        first = self._write(op)
        self.new |= {number: first + k for k, number in enumerate(given)}

    def _halved(self, old: int) -> int:
        """The number of a value's halves: written once, and moved as the value itself was."""
        if old not in self._half:
            spec, moved = self._old.specs[old], self._moved.get(old)
            assert spec is not None
            self._half[old] = self._write(self._rounded(old, spec) if moved is None else self._again(moved))
        return self._half[old]

    def _rounded(self, old: int, spec: Spec) -> Op:
        return Op("halve", (Ref(self.new[old]),), (spec,))

    def _again(self, moved: Op) -> Op:
        what, order = moved.arguments
        return replace(moved, arguments=(Ref(self._halved(what.number)), order))

    def _write(self, op: Op) -> int:
        self.ops.append(op)
        self._count += len(op.results)
        return self._count - len(op.results)

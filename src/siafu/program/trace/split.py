"""Splitting a tensor program in two that run one after the other, as if what it does were two tasks.

Siafu has no need of it: one task does all that lies between two gathers. It is there to measure what that is worth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from siafu.program.operations import PRODUCTS
from siafu.program.tensor_program import RowCount, TensorProgram, prune, results_of
from siafu.program.trace.keep import reading

_VIEWS = ("permute", "reshape", "expand", "slice")
"""Operations that only look at a value in another way: the second program does them again."""

Halves = tuple[TensorProgram, TensorProgram]


def split_forward(program: TensorProgram) -> Halves | None:
    """Cut before the last product: what one layer does after its gather, and what the next does before its own.

    None: nothing but views comes before it.
    """
    at = max((place for place, op in enumerate(program.ops) if op.name in PRODUCTS), default=0)
    return _split(program, at, lambda name: name.startswith("rows/"))


def split_backward(program: TensorProgram) -> Halves | None:
    """Cut after the first product that gives a gradient of rows; of the forward pass each half computes what it reads."""
    walk = _Walk(program, lambda name: name.startswith("gradient/"))
    found = (
        place
        for place, op in enumerate(program.ops)
        if op.name in PRODUCTS and all(map(walk.is_carried, walk.results[place]))
    )
    return _split(program, next(found, len(program.ops)) + 1, walk.begins)


def split_last(program: TensorProgram, forward: TensorProgram) -> Halves | None:
    """Cut the last phase's program between what `forward` does too, and the loss with its gradients."""
    at = len(forward.ops)
    if [op.name for op in program.ops[:at]] != [op.name for op in forward.ops]:
        return None
    return _split(program, at, lambda name: name.startswith("rows/"))


def _split(program: TensorProgram, at: int, begins: Callable[[str], bool]) -> Halves | None:
    """The operations before `at`, and the others.

    begins: whether values that depend on the input of that name are handed on, where both programs need them; all
            others are computed by both
    None: one of them would have nothing to do
    """
    walk = _Walk(program, begins)
    border = walk.start(at)
    early = [each for each in program.outputs if len(program.inputs) <= each[1] < border]
    late = [each for each in program.outputs if each not in early]
    named = {number: name for name, number in reversed(early) if walk.has_rows(number)}
    carried = walk.carried({number for _, number in late}, border)
    if carried is None or not carried or not late:
        return None
    carried_names = {number: named.get(number, f"carried/{k}") for k, number in enumerate(carried)}
    more = [(name, number) for number, name in carried_names.items() if number not in named]
    first = prune(program.inputs, program.ops, [*early, *more])
    return first, reading(program.inputs, program.ops, carried_names, late)


@dataclass(frozen=True)
class _Walk:
    """Dependencies between the values of a program. `begins`: the inputs whose values are handed on."""

    program: TensorProgram
    begins: Callable[[str], bool]

    @cached_property
    def results(self) -> list[range]:
        """The values that each operation gives."""
        return results_of(len(self.program.inputs), self.program.ops)

    @cached_property
    def _makers(self) -> dict[int, int]:
        """The operation that gives a value; inputs have none."""
        return {number: place for place, given in enumerate(self.results) for number in given}

    @cached_property
    def _dependent(self) -> set[int]:
        """The values that depend on such an input."""
        found = {number for number, (name, _) in enumerate(self.program.inputs) if self.begins(name)}
        for place, op in enumerate(self.program.ops):
            if found.intersection(op.refs()):
                found.update(self.results[place])
        return found

    def start(self, place: int) -> int:
        """The number of the first value that the operation at `place` gives, or would give."""
        return self.results[place].start if place < len(self.results) else len(self.program.specs)

    def has_rows(self, number: int) -> bool:
        spec = self.program.specs[number]
        return spec is not None and any(isinstance(size, RowCount) for size in spec.shape)

    def is_carried(self, number: int) -> bool:
        return number in self._dependent and self.has_rows(number)

    def carried(self, wanted: set[int], border: int) -> list[int] | None:
        """Values that the first program must hand on; None: a sum over rows, which is complete only when the task is."""
        found: set[int] = set()
        waiting, seen = list(wanted), set(wanted)
        while waiting:
            number = waiting.pop()
            if number not in self._makers:
                continue
            op = self.program.ops[self._makers[number]]
            if number < border and number in self._dependent and op.name not in _VIEWS:
                if not self.has_rows(number):
                    return None
                found.add(number)
                continue
            further = set(op.refs()) - seen
            seen |= further
            waiting += further
        return sorted(found)

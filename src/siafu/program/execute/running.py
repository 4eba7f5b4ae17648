"""What every executor of tensor programs needs to know of one, found once."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Op, RowCount, TensorProgram

T = TypeVar("T")


class Frame:
    """How a program's values come in and when they go.

    float_in: the position of an input whose precision is that of the whole run; None: there is no such input
    """

    def __init__(self, program: TensorProgram) -> None:
        self.names = program.input_names
        self.float_in = next((k for k, (_, spec) in enumerate(program.inputs) if spec.kind == "float"), None)
        self._counted = [
            (k, axis, size.times)
            for k, (_, spec) in enumerate(program.inputs)
            for axis, size in enumerate(spec.shape)
            if isinstance(size, RowCount)
        ]

    def pick(self, inputs: Mapping[str, T]) -> list[T]:
        """The inputs in the program's order."""
        try:
            return [inputs[name] for name in self.names]
        except KeyError as missing:
            raise BadInput(f"a tensor program wants {missing.args[0]!r}, which was not given") from missing

    def count_rows(self, given: Sequence[Any], rows: int | None) -> int:
        """How many rows the inputs have, all of them; `rows` if none of them has any."""
        for k, axis, times in self._counted:
            found = given[k].shape[axis] // times
            if rows is not None and found != rows:
                raise BadInput(f"a tensor program got {found} rows of {self.names[k]!r} and {rows} of others")
            rows = found
        return 0 if rows is None else rows


def steps_of(program: TensorProgram) -> dict[int, Op]:
    """Operations in order, by the number of the first value that each gives."""
    found, number = {}, len(program.inputs)
    for op in program.ops:
        found[number] = op
        number += len(op.results)
    return found


def dead_after(steps: Mapping[int, Op], program: TensorProgram) -> list[tuple[int, ...]]:
    """For each step, the values that nobody reads after it."""
    last: dict[int, int] = {}
    for position, (first, op) in enumerate(steps.items()):
        last |= dict.fromkeys((*op.refs(), *range(first, first + len(op.results))), position)
    for _, number in program.outputs:
        last.pop(number, None)
    dead: list[list[int]] = [[] for _ in steps]
    for number, position in last.items():
        dead[position].append(number)
    return [tuple(each) for each in dead]

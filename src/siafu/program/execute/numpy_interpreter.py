"""Running tensor programs with NumPy alone: what a Lambda does, which has neither PyTorch nor Numba."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.program.execute.numpy_operations import FUNCTIONS
from siafu.program.execute.running import Frame, dead_after, steps_of
from siafu.program.tensor_program import Op, Ref, TensorProgram, sizes

Array = NDArray[Any]


class NumpyInterpreter:
    """As `torch_executor.TorchExecutor`, with arrays for tensors."""

    def __init__(self, program: TensorProgram) -> None:
        self.program = program
        self._frame = Frame(program)
        self._dead = dead_after(steps_of(program), program)

    def __call__(self, inputs: Mapping[str, Array], rows: int | None = None) -> list[Array]:
        """rows: how many there are, for a program that reads none and makes some"""
        given = self._frame.pick(inputs)
        lead = self._frame.float_in
        precision = np.dtype(np.float32) if lead is None else given[lead].dtype
        rows = self._frame.count_rows(given, rows)
        values: list[Any] = list(given)
        # PyTorch does not warn of infinities either.
        with np.errstate(all="ignore"):
            for op, dead in zip(self.program.ops, self._dead, strict=True):
                values += _results(op, _compute(op, values, rows, precision), precision)
                for number in dead:
                    values[number] = None
        return [values[number] for _, number in self.program.outputs]


def _compute(op: Op, values: list[Any], rows: int, precision: np.dtype[Any]) -> Any:
    match op.name, op.arguments:
        case "reshape", (Ref(number), shape):
            return values[number].reshape(sizes(shape, rows))
        case "expand", (Ref(number), shape):
            return np.broadcast_to(values[number], sizes(shape, rows))
        case "full", (shape, filling, kind):
            return np.full(sizes(shape, rows), filling, _dtype(kind, precision))
        case "constant", (numbers, shape, kind):
            return np.array(numbers, _dtype(kind, precision)).reshape(shape)
        case "to", (Ref(number), kind):
            return values[number].astype(_dtype(kind, precision))
        case "cat", (parts, dim):
            return FUNCTIONS["cat"](*(values[part.number] for part in parts), dim)
    arguments = [values[each.number] if isinstance(each, Ref) else each for each in op.arguments]
    return FUNCTIONS[op.name](*arguments)


def _results(op: Op, found: Any, precision: np.dtype[Any]) -> list[Any]:
    """Results of an operation, as arrays of the kind it says: NumPy widens where PyTorch does not."""
    given = found if len(op.results) > 1 else (found,)
    return [
        None if spec is None or each is None else np.asarray(each, _dtype(spec.kind, precision))
        for spec, each in zip(op.results, given, strict=True)
    ]


def _dtype(kind: str, precision: np.dtype[Any]) -> np.dtype[Any]:
    return precision if kind == "float" else np.dtype(kind)

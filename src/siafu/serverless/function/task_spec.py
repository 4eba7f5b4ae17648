"""TaskSpec: inputs and outputs of a tensor task that travel. Both sides of the wire work it out from the program."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from siafu.program.tensor_program import RowCount, Spec, TensorProgram
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Array, Tensors

Specs = Mapping[str, Spec]

_WEIGHT = "weight/"
_LEAST_ROWS = 256  # of a part: fewer, and the calls cost more than the waiting
_CONSTANT_PARTS = 16  # times as large as others may be parts with rows that never change
PRECISIONS = ("float32", "float64")


class TaskSpec:
    """The inputs and outputs of a program, by how they travel.

    row_inputs:   rows, sent in parts
    whole_inputs: sent with the offer
    weights:      the names to ask the weight server for
    row_outputs:  rows, sent in parts
    sums:         sums over rows, sent once all are computed
    can_be_cut:   whether some of the rows can be computed without the others
    """

    def __init__(self, program: TensorProgram, precision: str) -> None:
        if precision not in PRECISIONS:
            raise Refusal("field", f"a task in {precision!r}: tasks are in {' or '.join(PRECISIONS)}")
        self.program, self.precision = program, np.dtype(precision)
        given = dict(program.inputs)
        made = {name: _spec_of(program, number) for name, number in program.outputs}
        weights = {name: spec for name, spec in given.items() if name.startswith(_WEIGHT)}
        self.weight_specs = {name.removeprefix(_WEIGHT): spec for name, spec in weights.items()}
        self.row_inputs = {name: spec for name, spec in given.items() if _has_rows(spec)}
        self.whole_inputs = {
            name: spec for name, spec in given.items() if name not in weights and not _has_rows(spec)
        }
        self.row_outputs = {name: spec for name, spec in made.items() if _has_rows(spec)}
        self.sums = {name: spec for name, spec in made.items() if not _has_rows(spec)}
        self.can_be_cut = all(map(_rows_first, (*self.row_inputs.values(), *self.row_outputs.values())))

    @property
    def weights(self) -> tuple[str, ...]:
        return tuple(self.weight_specs)

    def travelling(self, held: Collection[str]) -> dict[str, Spec]:
        """Inputs sent in parts: all but those that the Lambda holds."""
        return {name: spec for name, spec in self.row_inputs.items() if name not in held}

    def arriving(self, unsent: Collection[str]) -> dict[str, Spec]:
        """Outputs sent in parts: all but those that stay with the Lambda."""
        return {name: spec for name, spec in self.row_outputs.items() if name not in unsent}

    def parts(self, rows: int, part_bytes: int, constants: Collection[str] = ()) -> int:
        """Number of parts for that many rows: each has about `part_bytes` of inputs or of outputs.

        constants: inputs that are seldom sent, then in larger parts; the bounds of parts do not depend on whether
                   they are sent, so that sums are equal
        """
        if not self.can_be_cut:
            return 1
        often = max(self.bytes(self.travelling(constants), rows), self.bytes(self.row_outputs, rows))
        seldom = self.bytes(self.row_inputs, rows) / _CONSTANT_PARTS
        return max(1, min(math.ceil(max(often, seldom) / part_bytes), rows // _LEAST_ROWS))

    def bytes(self, specs: Specs, rows: int) -> int:
        return sum(math.prod(spec.sizes(rows)) * self.dtype(spec).itemsize for spec in specs.values())

    def moved(self, rows: int, held: Collection[str] = ()) -> int:
        """Bytes that travel in the direction in which more do, to and from a Lambda that holds some of the inputs."""
        inwards = self.travelling(held) | self.whole_inputs
        return max(self.bytes(inwards, rows), self.bytes(self.row_outputs | self.sums, rows))

    def each_bytes(self, specs: Specs, rows: int) -> dict[str, int]:
        return {name: self.bytes({name: spec}, rows) for name, spec in specs.items()}

    def largest(self, specs: Specs, rows: int) -> int:
        """Bytes of the largest of these tensors."""
        return max(self.each_bytes(specs, rows).values(), default=0)

    def dtype(self, spec: Spec) -> np.dtype[Any]:
        return self.precision if spec.kind == "float" else np.dtype(spec.kind)

    def check(self, specs: Specs, tensors: Tensors, rows: int) -> None:
        """Refuse tensors of other names, shapes or types."""
        if set(tensors) != set(specs):
            raise Refusal("tensor", f"{_listed(tensors)} where {_listed(specs)} should be")
        for name, spec in specs.items():
            found, shape, dtype = tensors[name], spec.sizes(rows), self.dtype(spec)
            if found.shape != shape or found.dtype != dtype:
                raise Refusal(
                    "tensor", f"{name!r} as {found.dtype}{list(found.shape)}, not {dtype}{list(shape)}"
                )

    def rows_of(self, specs: Specs, tensors: Tensors, first: int, last: int) -> dict[str, Array]:
        """Views of some of the rows."""
        return {name: tensors[name][rows_slice(spec, first, last)] for name, spec in specs.items()}


def rows_slice(spec: Spec, first: int, last: int) -> slice:
    """Where the rows `first` to `last` are in a tensor that begins with rows; all of one that does not."""
    size = spec.shape[0]
    return slice(first * size.times, last * size.times) if isinstance(size, RowCount) else slice(None)


def _spec_of(program: TensorProgram, number: int) -> Spec:
    spec = program.specs[number]
    if spec is None:
        raise Refusal("tensor", "a program with an output that none of its operations gives")
    return spec


def _has_rows(spec: Spec) -> bool:
    return any(isinstance(size, RowCount) for size in spec.shape)


def _rows_first(spec: Spec) -> bool:
    return [k for k, size in enumerate(spec.shape) if isinstance(size, RowCount)] == [0]


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)[:8]) or "nothing"

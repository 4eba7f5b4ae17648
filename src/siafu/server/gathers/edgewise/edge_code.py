"""From an edge function's tensor programs to code of the edge machine, where they work element by element."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from siafu.kernels import EDGE_OPERATIONS, GRADIENT, MAXIMUM, SOURCE, TARGET, EdgeCode
from siafu.program.phase_programs import PhasePrograms
from siafu.program.tensor_program import Op, Ref, TensorProgram

_TABLES = {"rows/0": SOURCE, "rows/1": TARGET, "gradient/0": GRADIENT}
_MOST_REGISTERS = 24  # more would not stay in a near cache


class _Other(Exception):
    """A program that the machine has no code for."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Columns of a table."""

    table: int
    first: int
    width: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """Values side by side, by their first column; zeros between them."""

    width: int
    values: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class EdgeCodes:
    """An edge function in the machine's code. to_source, to_target: gradients of both ends' rows; None: for no training"""

    messages: EdgeCode
    to_source: EdgeCode | None
    to_target: EdgeCode | None


def codes_of(programs: PhasePrograms, *, greatest: bool) -> EdgeCodes | None:
    """The code of an edge function; None: it is more than operations on elements.

    greatest: whether messages are compared, so that only those that reach the maximum have a gradient
    """
    forward, backward = programs.forward, programs.backward
    try:
        messages = _code(forward, "output/0")
        if backward is None:
            return EdgeCodes(messages, None, None)
        compared = forward if greatest else None
        ends = (_code(backward, f"grad/rows/{end}", compared) for end in (0, 1))
        return EdgeCodes(messages, *ends)
    except _Other:
        return None


def _code(program: TensorProgram, output: str, compared: TensorProgram | None = None) -> EdgeCode:
    writer = _Writer()
    gate = None
    if compared is not None:
        reached = writer.parts(_Reader(compared, writer).output("output/0"))
        gate = dict(reached.values)
    found = writer.parts(_Reader(program, writer, gate).output(output))
    return writer.written(found)


@dataclass(eq=False)
class _Writer:
    """Collects operations, each once; values are numbered as they come."""

    width: int = 0
    known: dict[Any, int] = field(default_factory=dict)
    steps: list[tuple[Any, ...]] = field(default_factory=list)

    def value(self, *step: Any) -> int:
        """The value of a step: ("load", table, column), ("number", x) or (operation, operands …)."""
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
        return self.known[step]

    def is_wide(self, width: int) -> None:
        """All values have one width."""
        if self.width not in (0, width):
            raise _Other
        self.width = width

    def loaded(self, found: Any) -> int:
        """A value as one that operations take."""
        if isinstance(found, _Span):
            self.is_wide(found.width)
            return self.value("load", found.table, found.first)
        if isinstance(found, _Parts):
            if len(found.values) != 1 or found.width != self.width:
                raise _Other
            return found.values[0][1]
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            return self.value("number", float(found))
        raise _Other

    def parts(self, found: Any) -> _Parts:
        if isinstance(found, _Parts):
            return found
        return _Parts(self.width, ((0, self.loaded(found)),))

    def written(self, found: _Parts) -> EdgeCode:
        if not found.values:
            return EdgeCode(
                1, 0, _table([], 3), _table([], 1)[0:0, 0], np.empty(0), _table([], 5), _table([], 2)
            )
        used = self._used([value for _, value in found.values])
        place, count = self._placed(used, [value for _, value in found.values])
        if count > _MOST_REGISTERS:
            raise _Other
        loads, ops, fills, numbers = [], [], [], []
        for value in used:
            name, *given = self.steps[value]
            if name == "load":
                loads.append((place[value], *given))
            elif name == "number":
                fills.append(place[value])
                numbers.append(given[0])
            else:
                operands = [place[each] for each in given]
                ops.append((EDGE_OPERATIONS.index(name), place[value], *operands, *[0] * (3 - len(operands))))
        stores = [(place[value], column) for column, value in found.values]
        return EdgeCode(
            self.width,
            count,
            _table(loads, 3),
            np.array(fills, np.int64),
            np.array(numbers, np.float64),
            _table(ops, 5),
            _table(stores, 2),
        )

    def _operands(self, value: int) -> list[int]:
        name, *given = self.steps[value]
        return [] if name in ("load", "number") else given

    def _used(self, wanted: list[int]) -> list[int]:
        found: set[int] = set()
        waiting = list(wanted)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting += self._operands(value)
        return sorted(found)

    def _placed(self, used: list[int], kept: list[int]) -> tuple[dict[int, int], int]:
        """A register for each value, free again after its last use; numbers and loads, which come first, keep theirs till then."""
        last = {value: value for value in used}
        for value in used:
            for each in self._operands(value):
                last[each] = value
        for value in kept:
            last[value] = len(self.steps)
        place: dict[int, int] = {}
        free: list[int] = []
        count = 0
        early = [value for value in used if self.steps[value][0] in ("load", "number")]
        for value in [*early, *(each for each in used if each not in set(early))]:
            if free and value not in early:
                place[value] = free.pop()
            else:
                place[value], count = count, count + 1
            # Not a number's: it is filled once for all batches. Not before the result has its own: loops over both would overlap.
            ended = (each for each in set(self._operands(value)) if last[each] == value)
            free += [place[each] for each in ended if self.steps[each][0] != "number"]
        return place, count


def _table(rows: list[Any], columns: int) -> Any:
    return np.array(rows, np.int64).reshape(-1, columns)


@dataclass(eq=False)
class _Reader:
    """Reads a program from an output back to its inputs. gate: messages by their first columns, which gradients must reach; None: all do"""

    program: TensorProgram
    writer: _Writer
    gate: dict[int, int] | None = None
    known: dict[int, Any] = field(default_factory=dict)

    def output(self, name: str) -> Any:
        return self._at(dict(self.program.outputs)[name])

    def _at(self, number: int) -> Any:
        if number not in self.known:
            inputs = self.program.inputs
            self.known[number] = (
                self._input(number) if number < len(inputs) else self._op(*self._made(number))
            )
        return self.known[number]

    def _input(self, number: int) -> _Span:
        name, spec = self.program.inputs[number]
        if name not in _TABLES or len(spec.shape) != 2:
            raise _Other
        return _Span(_TABLES[name], 0, _columns(spec.shape))

    def _made(self, number: int) -> tuple[Op, tuple[Any, ...]]:
        op = self.program.ops[number - len(self.program.inputs)]
        spec = op.results[0]
        if len(op.results) != 1 or spec is None:
            raise _Other
        return op, spec.shape

    def _op(self, op: Op, shape: tuple[Any, ...]) -> Any:
        special = _SPECIAL.get(op.name)
        if special is not None:
            return special(self, op, shape)
        width = _columns(shape)
        given = [self._given(each) for each in op.arguments]
        if op.name == "add" and all(isinstance(each, _Parts) for each in given):
            return self._beside(given, width)
        words = [each for each in given if isinstance(each, str)]
        values = [self.gated(each) for each in given if not isinstance(each, str)]
        self.writer.is_wide(width)
        made = _COMPOSED.get(op.name)
        if made is not None and words in ([], ["none"]):
            return self._whole(made(self.writer.value, self._number, *values))
        if op.name not in EDGE_OPERATIONS:
            raise _Other
        return self._whole(self.writer.value(op.name, *values))

    def _given(self, argument: Any) -> Any:
        return self._at(argument.number) if isinstance(argument, Ref) else argument

    def _number(self, x: float) -> int:
        return self.writer.value("number", float(x))

    def _whole(self, value: int) -> _Parts:
        return _Parts(self.writer.width, ((0, value),))

    def gated(self, found: Any) -> int:
        """A value; a gradient only where its message reached the maximum."""
        if self.gate is None or not isinstance(found, _Span) or found.table != GRADIENT:
            return self.writer.loaded(found)
        if found.first not in self.gate:
            raise _Other
        share = self.writer.loaded(found)
        best = self.writer.loaded(_Span(MAXIMUM, found.first, found.width))
        return self.writer.value("if_equal", share, self.gate[found.first], best)

    def _beside(self, given: list[_Parts], width: int) -> _Parts:
        if any(each.width != width for each in given):
            raise _Other
        found: dict[int, int] = {}
        for column, value in (pair for each in given for pair in each.values):
            found[column] = self.writer.value("add", found[column], value) if column in found else value
        return _Parts(width, tuple(sorted(found.items())))

    def slice(self, op: Op, shape: tuple[Any, ...]) -> Any:
        found, (dim, start, end, step) = self._given(op.arguments[0]), op.arguments[1:]
        if dim != 1 or step != 1:
            raise _Other
        if isinstance(found, _Span):
            return _Span(found.table, found.first + start, end - start)
        inside = dict(found.values)
        if start not in inside or end - start != self.writer.width:
            raise _Other
        return self._whole(inside[start])

    def pad(self, op: Op, shape: tuple[Any, ...]) -> Any:
        found, (dim, before, _) = self._given(op.arguments[0]), op.arguments[1:]
        if dim != 1:
            raise _Other
        inside = self.writer.parts(self._shared(found))
        return _Parts(_columns(shape), tuple((column + before, value) for column, value in inside.values))

    def cat(self, op: Op, shape: tuple[Any, ...]) -> Any:
        parts, dim = op.arguments
        if dim != 1:
            raise _Other
        found: list[tuple[int, int]] = []
        at = 0
        for each in parts:
            inside = self.writer.parts(self._shared(self._given(each)))
            found += [(column + at, value) for column, value in inside.values]
            at += inside.width
        return _Parts(at, tuple(found))

    def full(self, op: Op, shape: tuple[Any, ...]) -> Any:
        _, value, kind = op.arguments
        if kind != "float" or len(shape) != 2:
            raise _Other
        if value == 0:
            return _Parts(_columns(shape), ())
        self.writer.is_wide(_columns(shape))
        return self._whole(self._number(value))

    def _shared(self, found: Any) -> Any:
        return self._whole(self.gated(found)) if isinstance(found, _Span) else found


def _columns(shape: tuple[Any, ...]) -> int:
    if len(shape) != 2 or not isinstance(shape[1], int) or isinstance(shape[0], int):
        raise _Other
    return shape[1]


_SPECIAL: dict[str, Callable[..., Any]] = {
    "slice": _Reader.slice,
    "pad": _Reader.pad,
    "cat": _Reader.cat,
    "full": _Reader.full,
}

Value = Callable[..., int]


def _silu_backward(value: Value, number: Value, gradient: int, x: int) -> int:
    """g · s · (1 + x · (1 - s)), s = sigmoid(x)."""
    s = value("sigmoid", x)
    inner = value("add", number(1), value("mul", x, value("sub", number(1), s)))
    return value("mul", value("mul", gradient, s), inner)


def _normal(value: Value, number: Value, x: int) -> int:
    """The standard normal distribution's share below x."""
    whole = value("add", number(1), value("erf", value("mul", x, number(math.sqrt(0.5)))))
    return value("mul", number(0.5), whole)


def _gelu(value: Value, number: Value, x: int) -> int:
    return value("mul", x, _normal(value, number, x))


def _gelu_backward(value: Value, number: Value, gradient: int, x: int) -> int:
    bell = value("exp", value("mul", number(-0.5), value("mul", x, x)))
    density = value("mul", number(1 / math.sqrt(2 * math.pi)), bell)
    return value("mul", gradient, value("add", _normal(value, number, x), value("mul", x, density)))


def _power(value: Value, number: Value, x: int, exponent: int) -> int:
    if exponent != number(2):
        raise _Other
    return value("mul", x, x)


_COMPOSED: dict[str, Callable[..., int]] = {
    "silu": lambda value, number, x: value("mul", x, value("sigmoid", x)),
    "silu_backward": _silu_backward,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "reciprocal": lambda value, number, x: value("div", number(1), x),
    "rsqrt": lambda value, number, x: value("div", number(1), value("sqrt", x)),
    "pow": _power,
    "logical_not": lambda value, number, x: value("eq", x, number(0)),
}

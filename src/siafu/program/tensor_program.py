"""TensorProgram: a computation on rows as data, with the number of rows left open.

It is stored as JSON, named by its hash, and run by PyTorch (`torch_executor`) or NumPy (`numpy_interpreter`).
Nothing here needs either.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from types import NoneType
from typing import Any, Literal, get_args

from siafu.base.errors import BadInput
from siafu.program.operations import OPERATIONS, flops

Kind = Literal["float", "int64", "uint8", "bool"]
"""Type of a value's numbers; "float" is the precision of the inputs, the same for all of them."""


@dataclass(frozen=True, slots=True)
class RowCount:
    """A size that is `times` the number of rows."""

    times: int = 1

    def __str__(self) -> str:
        return "rows" if self.times == 1 else f"{self.times}·rows"


Size = int | RowCount


@dataclass(frozen=True, slots=True)
class Spec:
    """Kind and shape of a value."""

    kind: Kind
    shape: tuple[Size, ...]

    def sizes(self, rows: int) -> tuple[int, ...]:
        return sizes(self.shape, rows)

    def __str__(self) -> str:
        return f"{self.kind}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Ref:
    """A value by its number: inputs first, then what each operation gives, in order."""

    number: int


Argument = Ref | int | float | bool | str | None | tuple["Argument", ...] | tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    name:      one of `operations.OPERATIONS`
    arguments: as its signature there says
    results:   what it gives; None: a result that was not asked for
    """

    name: str
    arguments: tuple[Any, ...]
    results: tuple[Spec | None, ...]

    def refs(self) -> Iterator[int]:
        """The numbers of the values it reads."""
        for argument in self.arguments:
            for each in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(each, Ref):
                    yield each.number


@dataclass(frozen=True)
class TensorProgram:
    """Operations from named inputs to named outputs, in order, each value given once.

    inputs:  names and specs; only what is read
    outputs: names and numbers of values
    """

    inputs: tuple[tuple[str, Spec], ...]
    ops: tuple[Op, ...]
    outputs: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def specs(self) -> tuple[Spec | None, ...]:
        """Specs of every value, by number."""
        return (*(spec for _, spec in self.inputs), *(each for op in self.ops for each in op.results))

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outputs)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of its canonical JSON: equal programs have equal names."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def filled_outputs(self, prefix: str) -> set[str]:
        """Names, after a prefix, of outputs that are one number whatever comes in."""
        made = {
            number: op.name
            for op, given in zip(self.ops, results_of(len(self.inputs), self.ops), strict=True)
            for number in given
        }
        return {
            name.removeprefix(prefix)
            for name, number in self.outputs
            if name.startswith(prefix) and made.get(number) == "full"
        }

    def flops(self, rows: int) -> int:
        """Floating-point operations for that many rows; those of elementary functions are estimates."""
        total = 0
        for op in self.ops:
            reads = [spec.sizes(rows) for spec in (self.specs[number] for number in op.refs()) if spec]
            total += flops(op.name, reads, [spec.sizes(rows) for spec in op.results if spec])
        return total

    def to_json(self) -> str:
        """Canonical: equal programs give equal text."""
        form = {
            "format": _FORMAT,
            "inputs": [[name, _spec_form(spec)] for name, spec in self.inputs],
            "ops": [
                [op.name, [_form(each) for each in op.arguments], [_spec_form(each) for each in op.results]]
                for op in self.ops
            ],
            "outputs": [[name, number] for name, number in self.outputs],
        }
        return json.dumps(form, separators=(",", ":"), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "TensorProgram":
        """Read what `to_json` wrote; anything else is refused."""
        try:
            form = json.loads(text)
            if form["format"] != _FORMAT:
                raise BadInput(f"a tensor program of format {form['format']!r}: this Siafu reads {_FORMAT}")
            if set(form) != {"format", "inputs", "ops", "outputs"}:
                raise ValueError(f"keys {sorted(form)}")
            return cls(
                tuple((_word(name), _given_spec(spec)) for name, spec in form["inputs"]),
                tuple(
                    Op(_word(name), tuple(map(_argument, arguments)), tuple(map(_spec, results)))
                    for name, arguments, results in form["ops"]
                ),
                tuple((_word(name), _whole(number)) for name, number in form["outputs"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"not a tensor program ({reason}): write it with TensorProgram.to_json") from error

    def __str__(self) -> str:
        names = [name for name, _ in self.inputs]
        lines = [f"{name}: {spec}" for name, spec in self.inputs]
        for op in self.ops:
            given = [f"%{len(names) + k}" for k in range(len(op.results))]
            names += given
            called = ", ".join(_text(each, names) for each in op.arguments)
            looks = ", ".join("-" if each is None else str(each) for each in op.results)
            lines.append(f"{', '.join(given)} = {op.name}({called}): {looks}")
        lines += [f"{name} ← {names[number]}" for name, number in self.outputs]
        return "\n".join(lines)


def sizes(shape: tuple[Size, ...], rows: int) -> tuple[int, ...]:
    """`shape` for that many rows."""
    return tuple(size.times * rows if isinstance(size, RowCount) else size for size in shape)


def results_of(inputs: int, ops: Iterable[Op]) -> list[range]:
    """Numbers of the values that each operation gives, after so many inputs."""
    ends = list(accumulate((len(op.results) for op in ops), initial=inputs))
    return [range(first, last) for first, last in pairwise(ends)]


def prune(
    inputs: tuple[tuple[str, Spec], ...], ops: tuple[Op, ...], outputs: list[tuple[str, int]]
) -> TensorProgram:
    """A program without the inputs and operations that the outputs do not need, values numbered anew."""
    needed = {number for _, number in outputs}
    alive: list[tuple[Op, range]] = []
    for op, given in reversed(list(zip(ops, results_of(len(inputs), ops), strict=True))):
        if needed.intersection(given):
            alive.insert(0, (op, given))
            needed.update(op.refs())
    kept = [number for number in range(len(inputs)) if number in needed]
    kept += [number for _, given in alive for number in given]
    new = {number: place for place, number in enumerate(kept)}
    return TensorProgram(
        tuple(each for number, each in enumerate(inputs) if number in needed),
        tuple(Op(op.name, renumbered(op.arguments, new), op.results) for op, _ in alive),
        tuple((name, new[number]) for name, number in outputs),
    )


def renumbered(arguments: tuple[Any, ...], new: dict[int, int]) -> tuple[Any, ...]:
    """`arguments` with the values' new numbers."""
    return tuple(
        Ref(new[each.number])
        if isinstance(each, Ref)
        else renumbered(each, new)
        if isinstance(each, tuple)
        else each
        for each in arguments
    )


_FORMAT = 1
_KINDS = get_args(Kind)
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _check(program: TensorProgram) -> None:
    names = [name for name, _ in program.inputs]
    if len(set(names)) != len(names):
        raise BadInput("a tensor program has two inputs of one name: write it with TensorProgram.to_json")
    known = len(names)
    for position, op in enumerate(program.ops):
        where = f"operation {position} of a tensor program"
        if op.name not in OPERATIONS:
            raise BadInput(f"{where} is {op.name!r}, which this Siafu does not know: update it")
        operation = OPERATIONS[op.name]
        if len(op.results) != operation.results or len(op.arguments) != len(operation.signature):
            raise BadInput(f"{where}, {op.name}, has the wrong number of arguments or results")
        for letter, argument in zip(operation.signature, op.arguments, strict=True):
            if not _fits(letter, argument):
                raise BadInput(f"{where}, {op.name}, has an argument that does not fit: {argument!r}")
        if any(not 0 <= number < known for number in op.refs()):
            raise BadInput(f"{where}, {op.name}, reads a value that is not there yet")
        known += len(op.results)
    if any(not 0 <= number < known for _, number in program.outputs):
        raise BadInput("an output of a tensor program is no value of it")


def _fits(letter: str, argument: Any) -> bool:
    if letter in _LISTS:
        return isinstance(argument, tuple) and all(type(each) in _LISTS[letter] for each in argument)
    return argument in _KINDS if letter == "k" else type(argument) in _SINGLE[letter]


_SINGLE: dict[str, tuple[type, ...]] = {
    "t": (Ref,),
    "x": (Ref, int, float, bool),
    "o": (Ref, NoneType),
    "n": (int, float),
    "m": (int, float, NoneType),
    "i": (int,),
    "b": (bool,),
    "w": (str,),
}
_LISTS: dict[str, tuple[type, ...]] = {
    "l": (Ref,),
    "d": (int,),
    "s": (int, RowCount),
    "c": (int, float, bool),
}


def _is_whole(thing: Any) -> bool:
    return isinstance(thing, int) and not isinstance(thing, bool)


def _form(argument: Any) -> Any:
    if isinstance(argument, Ref):
        return {"value": argument.number}
    if isinstance(argument, RowCount):
        return {"rows": argument.times}
    if isinstance(argument, tuple):
        return [_form(each) for each in argument]
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"number": str(argument)}
    return argument


def _argument(form: Any) -> Any:
    if isinstance(form, list):
        return tuple(_argument(each) for each in form)
    if not isinstance(form, dict):
        return form
    ((what, thing),) = form.items()
    if what == "value":
        return Ref(_whole(thing))
    if what == "rows":
        if _whole(thing) < 1:
            raise ValueError(f"{thing} times the rows")
        return RowCount(thing)
    if what == "number":
        return _SPECIAL[thing]
    raise ValueError(f"an argument {what!r}")


def _spec_form(spec: Spec | None) -> Any:
    return None if spec is None else [spec.kind, [_form(size) for size in spec.shape]]


def _spec(form: Any) -> Spec | None:
    return None if form is None else _given_spec(form)


def _given_spec(form: Any) -> Spec:
    kind, shape = form
    if kind not in _KINDS:
        raise ValueError(f"a value of kind {kind!r}")
    found = tuple(_argument(size) for size in shape)
    if not all(isinstance(size, RowCount) or (_is_whole(size) and size >= 0) for size in found):
        raise ValueError(f"a shape {shape!r}")
    return Spec(kind, found)


def _whole(thing: Any) -> int:
    if not _is_whole(thing):
        raise TypeError(f"{thing!r} is not a whole number")
    return int(thing)


def _word(thing: Any) -> str:
    if not isinstance(thing, str):
        raise TypeError(f"{thing!r} is not a name")
    return thing


def _text(argument: Any, names: list[str]) -> str:
    if isinstance(argument, Ref):
        return names[argument.number]
    if isinstance(argument, tuple):
        return f"[{', '.join(_text(each, names) for each in argument)}]"
    return str(argument)

"""Builder: operations put together one by one into a tensor program, without saying anything twice."""

from typing import Any

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Kind, Op, Ref, RowCount, Size, Spec

Operand = Ref | int | float | bool


class Builder:
    """Inputs and operations so far; an operation that was asked for before gives the value it gave then."""

    def __init__(self, inputs: list[tuple[str, Spec]]) -> None:
        self.inputs = tuple(inputs)
        self.ops: list[Op] = []
        self.specs: list[Spec | None] = [spec for _, spec in inputs]
        self._known: dict[Any, tuple[Ref, ...]] = {}
        self._made_by: dict[Ref, Op] = {}

    def spec(self, value: Ref) -> Spec:
        spec = self.specs[value.number]
        assert spec is not None, "a result that was not asked for is not read"
        return spec

    def emit(self, name: str, *arguments: Any, result: Spec) -> Ref:
        return self.emit_several(name, *arguments, results=(result,))[0]

    def emit_several(self, name: str, *arguments: Any, results: tuple[Spec | None, ...]) -> tuple[Ref, ...]:
        if any(isinstance(each, RowCount) for each in arguments):
            raise BadInput(
                f"the model's {name} computes with the number of rows: a tensor phase computes each vertex alone"
            )
        # 1, 1.0 and True are equal as keys, but not as arguments.
        key = name, repr(arguments), results
        if key not in self._known:
            op = Op(name, arguments, results)
            first = len(self.specs)
            self._known[key] = tuple(Ref(first + k) for k in range(len(results)))
            self._made_by |= dict.fromkeys(self._known[key], op)
            self.ops.append(op)
            self.specs += results
        return self._known[key]

    def tensor(self, value: Operand, kind: Kind = "float") -> Ref:
        """`value` as a value: a number becomes one without dimensions."""
        if isinstance(value, Ref):
            return value
        number = int(value) if isinstance(value, bool) else value
        return self.emit("full", (), number, kind, result=Spec(kind, ()))

    def to(self, value: Ref, kind: Kind) -> Ref:
        spec = self.spec(value)
        return value if spec.kind == kind else self.emit("to", value, kind, result=Spec(kind, spec.shape))

    def reshape(self, value: Ref, shape: tuple[Size, ...]) -> Ref:
        made = self._made_by.get(value)
        if made is not None and made.name == "reshape":
            return self.reshape(made.arguments[0], shape)
        spec = self.spec(value)
        if made is not None and made.name == "sum" and made.arguments[2]:
            total, dims, _ = made.arguments
            if shape == tuple(size for dim, size in enumerate(spec.shape) if dim not in dims):
                return self.emit("sum", total, dims, False, result=Spec(spec.kind, shape))
        return self._shaped("reshape", value, shape)

    def permute(self, value: Ref, order: tuple[int, ...]) -> Ref:
        made = self._made_by.get(value)
        if made is not None and made.name == "permute":
            before = made.arguments[1]
            return self.permute(made.arguments[0], tuple(before[k] for k in order))
        if order == tuple(range(len(order))):
            return value
        spec = self.spec(value)
        shape = tuple(spec.shape[k] for k in order)
        return self.emit("permute", value, order, result=Spec(spec.kind, shape))

    def expand(self, value: Ref, shape: tuple[Size, ...]) -> Ref:
        return self._shaped("expand", value, shape)

    def _shaped(self, name: str, value: Ref, shape: tuple[Size, ...]) -> Ref:
        spec = self.spec(value)
        return value if spec.shape == shape else self.emit(name, value, shape, result=Spec(spec.kind, shape))

    def slice(self, value: Ref, dim: int, start: int, end: int, step: int = 1) -> Ref:
        spec = self.spec(value)
        length = spec.shape[dim]
        if start == 0 and step == 1 and (end >= _FAR or end == length):
            return value
        if isinstance(length, RowCount):
            raise BadInput(
                "slice takes some rows out of many: a tensor phase computes each vertex alone, so write it without"
            )
        start, end = (min(max(each + length if each < 0 else each, 0), length) for each in (start, end))
        shape = (*spec.shape[:dim], max(0, -((start - end) // step)), *spec.shape[dim + 1 :])
        return self.emit("slice", value, dim, start, end, step, result=Spec(spec.kind, shape))

    def pad(self, value: Ref, dim: int, before: int, after: int) -> Ref:
        if before == after == 0:
            return value
        spec = self.spec(value)
        length = spec.shape[dim]
        assert isinstance(length, int), "rows are never padded"
        shape = (*spec.shape[:dim], before + length + after, *spec.shape[dim + 1 :])
        return self.emit("pad", value, dim, before, after, result=Spec(spec.kind, shape))


_FAR = 2**62  # PyTorch's "to the end"

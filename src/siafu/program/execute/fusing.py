"""Fusing: neighbouring operations of a tensor program as one pass over the rows, where PyTorch would make several.

Only how PyTorch runs a program on a server is changed, not the program: results have the bits of its operations one by one (of sums
over at most eight columns those of PyTorch's order, which is theirs; of a bias whose product is rectified and dropped, those of a
product first and then the bias; sums over the rows on the way back through a batch norm are taken in an order of their own).
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.kernels import elementwise
from siafu.kernels.moments import scaled_back
from siafu.nn.dropout import drop_rows, undrop_rows
from siafu.nn.tensors import as_rows
from siafu.program.execute.running import steps_of
from siafu.program.tensor_program import Op, Ref, RowCount, TensorProgram

_NARROW = 8  # columns of a head that PyTorch adds one after the other


def fused_steps(program: TensorProgram) -> dict[int, Op]:
    """The program's steps, as `steps_of` has them; some are named in `FUSED`."""
    steps = _Steps(program)
    while any(steps.fuse(number) for number in list(steps.ops)):
        pass  # from the start again: a value that has one reader now may be fused with it
    return _in_order(steps.ops)


def _in_order(ops: dict[int, Op]) -> dict[int, Op]:
    """Steps so that each comes after those that make what it reads; else they stay as they are."""
    waiting, found = dict(ops), dict[int, Op]()
    made = {number: first for first, op in ops.items() for number in range(first, first + len(op.results))}
    while waiting:
        for first, op in list(waiting.items()):
            if not any(made.get(number) in waiting for number in op.refs()):
                found[first] = waiting.pop(first)
    return found


class _Steps:
    """Steps while they are fused."""

    def __init__(self, program: TensorProgram) -> None:
        self.ops, self._specs = steps_of(program), program.specs
        self._outputs = [number for _, number in program.outputs]
        self._count_uses()

    def _count_uses(self) -> None:
        self._uses = Counter([*self._outputs, *(number for op in self.ops.values() for number in op.refs())])

    def fuse(self, number: int) -> bool:
        """Fuse the step that gives this value with those before it; whether it could be."""
        op = self.ops.get(number)
        rule = None if op is None else _RULES.get(op.name)
        made = None if op is None or rule is None else rule(self, op)
        if op is None or made is None:
            return False
        self.ops[number] = Op(*made, op.results)
        self.drop_unread()
        return True

    def replace(self, number: int, name: str, *arguments: Any) -> None:
        """Let another operation make this value."""
        self.ops[number] = Op(name, arguments, self.ops[number].results)

    def drop_unread(self) -> None:
        """Leave out what nobody reads any more."""
        self._count_uses()
        while unread := [
            first
            for first, op in self.ops.items()
            if not any(self._uses[number] for number in range(first, first + len(op.results)))
        ]:
            for first in unread:
                del self.ops[first]
            self._count_uses()

    def made_by(self, value: Any, name: str, *, alone: bool = True) -> tuple[Any, ...] | None:
        """Arguments of the operation that made a value, if it is one of that name; alone: and if it is read once."""
        if not isinstance(value, Ref) or (alone and self._uses[value.number] > 1):
            return None
        op = self.ops.get(value.number)
        return op.arguments if op is not None and op.name == name else None

    def take_bias(self, value: Any) -> Any:
        """The bias that a product adds, if it is read here alone; the product is one without it from now on."""
        parts = self.made_by(value, "addmm")
        if parts is None:
            return None
        bias, *factors = parts
        if len(self.shape(value) or ()) != 2 or not self.is_bias(bias, value):
            return None
        self.ops[value.number] = Op("mm", tuple(factors), self.ops[value.number].results)
        return bias

    def centred(self, value: Any) -> tuple[Any, Any] | None:
        """[rows, columns] and [columns] that are added to them, whoever else reads their sum."""
        parts = self.made_by(value, "add", alone=False)
        if parts is None or len(parts) != 2 or len(self.shape(value) or ()) != 2:
            return None
        fits = self.shape(parts[0]) == self.shape(value) and self.is_bias(parts[1], value)
        return (parts[0], parts[1]) if fits else None

    def reader(self, name: str, arguments: tuple[Any, ...]) -> int | None:
        """The first value that an operation of that name makes of these arguments."""
        return next(
            (number for number, op in self.ops.items() if op.name == name and op.arguments == arguments), None
        )

    def scaled(self, value: Any) -> tuple[int, Any] | None:
        """The value that is `value` times [columns], and these."""
        for number, op in self.ops.items():
            if op.name == "mul" and op.arguments[0] == value and self.is_bias(op.arguments[1], value):
                return number, op.arguments[1]
        return None

    def shape(self, value: Any) -> tuple[Any, ...] | None:
        spec = self._specs[value.number] if isinstance(value, Ref) else None
        return None if spec is None or spec.kind != "float" else spec.shape

    def sum_of(self, value: Any) -> tuple[Any, Any] | None:
        """The two whose sum is read here alone: both [rows, columns], or the second the columns of one row."""
        parts = self.made_by(value, "add")
        if parts is None or len(parts) != 2:
            return None
        rows, other = parts
        whole = self.shape(rows)
        fits = whole is not None and len(whole) == 2 and self.shape(other) in (whole, whole[1:])
        return (rows, other) if fits else None

    def is_bias(self, value: Any, rows: Any) -> bool:
        """Whether a value is a number for each column of rows."""
        return self.shape(value) == self.shape(rows)[1:]  # type: ignore[index]

    def is_heads(self, value: Any, *, rows: bool) -> bool:
        """Whether a value has columns of several heads: for each row, or of one row that stands for all."""
        shape = self.shape(value)
        return shape is not None and len(shape) == 3 and shape[0] == (RowCount(1) if rows else 1)

    def spread(self, value: Any) -> Ref | None:
        """[rows, heads] numbers of which each was repeated for all columns of its head."""
        for_all = self.made_by(value, "expand", alone=False)
        one = None if for_all is None else self.made_by(for_all[0], "reshape", alone=False)
        if one is None or not self.is_heads(value, rows=True):
            return None
        heads = self.shape(value)[:2]  # type: ignore[index]
        return one[0] if self.shape(one[0]) == heads and self.shape(for_all[0]) == (*heads, 1) else None  # type: ignore[index]


_Fused = tuple[str, tuple[Any, ...]]


def _fuse_dropout(steps: _Steps, op: Op) -> _Fused | None:
    """dropout(relu(rows + bias + others)), one of them or both"""
    rectified = steps.made_by(op.arguments[0], "relu")
    if rectified is None:
        return None
    summed = steps.sum_of(rectified[0])
    if summed is None:
        bias = steps.take_bias(rectified[0])
        return None if bias is None else ("drop_rectified", (rectified[0], bias, None, *op.arguments[1:]))
    rows, other = summed
    if steps.is_bias(other, rows):
        return "drop_rectified", (rows, other, None, *op.arguments[1:])
    for first, second in (summed, summed[::-1]):
        inner = steps.sum_of(first)
        if inner is not None and steps.is_bias(inner[1], inner[0]):
            return "drop_rectified", (*inner, second, *op.arguments[1:])
    return "drop_rectified", (rows, None, other, *op.arguments[1:])


def _fuse_normed(steps: _Steps, op: Op) -> _Fused | None:
    """dropout(relu((rows + shift) · factor + bias + others)): rows of a batch norm"""
    rows, bias, more, *rest = op.arguments
    product = steps.made_by(rows, "mul") if len(rest) == 4 and bias is not None else None
    parts = None if product is None else steps.centred(product[0])
    if product is None or parts is None or not steps.is_bias(product[1], rows):
        return None
    return "drop_rectified", (parts[0], bias, more, *rest, parts[1], product[1])


def _fuse_normed_back(steps: _Steps, op: Op) -> _Fused | None:
    """Σ gradient · (rows + shift), where gradient · factor and perhaps Σ of either are wanted, too"""
    product, dims, keep = op.arguments
    factors = steps.made_by(product, "mul")
    if factors is None or dims != (0,) or keep:
        return None
    for gradient, rows in (factors, factors[::-1]):
        parts, scaled = steps.centred(rows), steps.scaled(gradient)
        if parts is None or scaled is None or steps.shape(gradient) != steps.shape(rows):
            continue
        whole = Ref(product.number)  # its place is free: nobody else reads the product
        number, factor = scaled
        summed, after = (
            steps.reader("sum", (gradient, (0,), False)),
            steps.reader("sum", (Ref(number), (0,), False)),
        )
        steps.replace(product.number, "scaled_back", gradient, *parts, factor)
        steps.replace(number, "part", whole, 0)
        if summed is not None:
            steps.replace(summed, "part", whole, 1)
            if after is not None:
                steps.replace(after, "mul", Ref(summed), factor)
        return "part", (whole, 2)
    return None


def _fuse_undrop(steps: _Steps, op: Op) -> _Fused | None:
    """threshold_backward(gradient · number, x, 0), where the gradient may be a sum"""
    gradient, x, threshold = op.arguments
    scaled = steps.made_by(gradient, "mul")
    if scaled is None or threshold != 0 or isinstance(scaled[1], Ref) or steps.shape(x) is None:
        return None
    if steps.shape(scaled[0]) != steps.shape(x) or len(steps.shape(x)) != 2:  # type: ignore[arg-type]
        return None
    summed = steps.sum_of(scaled[0])
    if summed is None or steps.is_bias(summed[1], summed[0]):
        summed = scaled[0], None
    return "undrop", (*summed, x, scaled[1])


def _fuse_head_sum(steps: _Steps, op: Op) -> _Fused | None:
    """(rows · weights of one row) summed over each head's columns"""
    product, dims, keep = op.arguments
    factors = steps.made_by(product, "mul")
    if factors is None or dims != (2,) or keep or not steps.is_heads(factors[0], rows=True):
        return None
    if not steps.is_heads(factors[1], rows=False) or not 0 < steps.shape(factors[1])[2] <= _NARROW:  # type: ignore[index]
        return None
    return "head_sums", factors


def _fuse_mul(steps: _Steps, op: Op) -> _Fused | None:
    """rows · numbers of their heads"""
    factors = steps.spread(op.arguments[0])
    if factors is None or not steps.is_heads(op.arguments[1], rows=True):
        return None
    return "head_products", (factors, op.arguments[1])


def _fuse_add(steps: _Steps, op: Op) -> _Fused | None:
    """rows + (numbers of heads · weights of one row + others · others)"""
    flat = steps.made_by(op.arguments[-1], "reshape") if len(op.arguments) == 2 else None
    both = None if flat is None else steps.made_by(flat[0], "add")
    if both is None or len(both) != 2 or steps.shape(op.arguments[0]) != steps.shape(op.arguments[1]):
        return None
    found: list[Any] = [op.arguments[0]]
    for each in both:
        product = steps.made_by(each, "mul")
        factors = None if product is None else steps.spread(product[0])
        if product is None or factors is None or not steps.is_heads(product[1], rows=False):
            return None
        found += [factors, product[1]]
    return "add_head_products", tuple(found)


def _fuse_sum(steps: _Steps, op: Op) -> _Fused | None:
    return _fuse_head_sum(steps, op) or _fuse_normed_back(steps, op)


_RULES: dict[str, Callable[[_Steps, Op], _Fused | None]] = {
    "dropout": _fuse_dropout,
    "drop_rectified": _fuse_normed,
    "threshold_backward": _fuse_undrop,
    "sum": _fuse_sum,
    "mul": _fuse_mul,
    "add": _fuse_add,
}


def _drop_rectified(
    rows: Tensor,
    bias: Tensor | None,
    more: Tensor | None,
    vertices: Tensor,
    key: Tensor,
    p: float,
    site: int,
    shift: Tensor | None = None,
    factor: Tensor | None = None,
) -> Tensor:
    seed, epoch = key.tolist()
    found = drop_rows(
        as_rows(rows),
        vertices.numpy(),
        seed,
        epoch,
        p,
        site,
        bias=None if bias is None else _numbers(bias),
        more=None if more is None else as_rows(more),
        shift=None if shift is None else _numbers(shift),
        factor=None if factor is None else _numbers(factor),
    )
    return torch.from_numpy(found)


def _numbers(columns: Tensor) -> NDArray[Any]:
    """[columns], next to each other."""
    found: NDArray[Any] = columns.detach().contiguous().numpy()
    return found


def _scaled_back(gradient: Tensor, rows: Tensor, shift: Tensor, factor: Tensor) -> tuple[Tensor, ...]:
    found = scaled_back(as_rows(gradient), as_rows(rows), _numbers(shift), _numbers(factor))
    return tuple(map(torch.from_numpy, found))


def _undrop(gradient: Tensor, more: Tensor | None, dropped: Tensor, scale: float) -> Tensor:
    rows = as_rows(gradient)
    return torch.from_numpy(
        undrop_rows(rows, None if more is None else as_rows(more), as_rows(dropped), scale)
    )


def _head_sums(rows: Tensor, weights: Tensor) -> Tensor:
    given = _flat(rows)
    out = np.empty(rows.shape[:2], given.dtype)
    elementwise.head_sums(given, _flat(weights)[0], out)
    return torch.from_numpy(out)


def _head_products(factors: Tensor, rows: Tensor) -> Tensor:
    given = _flat(rows)
    out = np.empty_like(given)
    elementwise.head_products(_flat(factors), given, out)
    return torch.from_numpy(out).reshape(rows.shape)


def _add_head_products(base: Tensor, *pairs: Tensor) -> Tensor:
    given = _flat(base)
    left, left_weights, right, right_weights = (_flat(each) for each in pairs)
    out = np.empty_like(given)
    elementwise.add_head_products(given, left, left_weights[0], right, right_weights[0], out)
    return torch.from_numpy(out)


def _flat(values: Tensor) -> NDArray[Any]:
    """[rows, all other dimensions], next to each other."""
    found: NDArray[Any] = values.detach().contiguous().flatten(1).numpy()
    return found


FUSED: dict[str, Callable[..., Any]] = {
    "drop_rectified": _drop_rectified,
    "undrop": _undrop,
    "scaled_back": _scaled_back,
    "part": lambda parts, which: parts[which],
    "head_sums": _head_sums,
    "head_products": _head_products,
    "add_head_products": _add_head_products,
}

"""Running tensor programs with PyTorch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.kernels.products import (
    PRODUCTS_ARE_FAST,
    multiplies_rows,
    row_products,
    summed_products,
    sums_products,
)
from siafu.nn.dropout import drop_rows
from siafu.nn.tensors import as_rows
from siafu.program.execute.fusing import FUSED, fused_steps
from siafu.program.execute.half_product import half_product, halved
from siafu.program.execute.running import Frame, dead_after
from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.tensor_program import Op, Ref, RowCount, TensorProgram

aten = torch.ops.aten
_KINDS = {"int64": torch.int64, "uint8": torch.uint8, "bool": torch.bool}

_MANY = 512  # rows: of fewer, a product takes not much longer than the zeros beside it

Values = list[Any]
RunOperation = Callable[[Values, int, torch.dtype], None]


class TorchExecutor:
    """A program made ready once and run many times, on the calling thread; it may run on several at a time.

        TorchExecutor(program)({"rows/0": x, …}) → the outputs, in the program's order

    Floats of all inputs have one type, float32 or float64, and so have the results. Inputs that the program only
    multiplies (`multiplied_only`) may be `SparseRows`, and bfloat16 where its products are of that.
    """

    def __init__(self, program: TensorProgram) -> None:
        self.program = program
        self._frame = Frame(program)
        self._outputs = [number for _, number in program.outputs]
        self._size = len(program.specs)
        steps = fused_steps(program)
        self._steps = [
            _step(op, first, dead)
            for (first, op), dead in zip(steps.items(), dead_after(steps, program), strict=True)
        ]

    def __call__(self, inputs: Mapping[str, Tensor | SparseRows], rows: int | None = None) -> list[Tensor]:
        """rows: how many there are, for a program that reads none and makes some"""
        return self.run(self._frame.pick(inputs), rows)

    def run(self, given: Sequence[Tensor | SparseRows], rows: int | None = None) -> list[Tensor]:
        """The same with the inputs in the program's order."""
        values: Values = [*given, *([None] * (self._size - len(given)))]
        rows = self._frame.count_rows(given, rows)
        lead = self._frame.float_in
        precision = torch.float32 if lead is None else given[lead].dtype
        if precision == torch.bfloat16:  # rows that are products' alone: everything else is wider
            precision = torch.float32
        if torch.is_grad_enabled():
            with torch.no_grad():
                self._run_steps(values, rows, precision)
        else:  # as on the threads of a run: to say so again takes as long as a small operation
            self._run_steps(values, rows, precision)
        return [values[number] for number in self._outputs]

    def _run_steps(self, values: Values, rows: int, precision: torch.dtype) -> None:
        for step in self._steps:
            step(values, rows, precision)


def _step(op: Op, first: int, dead: tuple[int, ...]) -> RunOperation:
    compute = _bind(op)
    if len(op.results) == 1:

        def one(values: Values, rows: int, precision: torch.dtype) -> None:
            values[first] = compute(values, rows, precision)
            for number in dead:
                values[number] = None

        return one
    last = first + len(op.results)

    def several(values: Values, rows: int, precision: torch.dtype) -> None:
        values[first:last] = compute(values, rows, precision)
        for number in dead:
            values[number] = None

    return several


Compute = Callable[[Values, int, torch.dtype], Any]


def _bind(op: Op) -> Compute:
    """The operation with its arguments: values are looked up, everything else is fixed now."""
    if op.name in _SHAPED:
        return _SHAPED[op.name](*op.arguments)
    function = _FUNCTIONS.get(op.name) or FUSED[op.name]
    if op.name == "cat":
        parts, dim = op.arguments
        numbers = [each.number for each in parts]
        return lambda values, rows, precision: torch.cat([values[number] for number in numbers], dim)
    refs = [each.number for each in op.arguments if isinstance(each, Ref)]
    if refs and all(isinstance(each, Ref) for each in op.arguments[: len(refs)]):
        fixed = op.arguments[len(refs) :]
        if len(refs) == 1:
            (a,) = refs
            return lambda values, rows, precision: function(values[a], *fixed)
        if len(refs) == 2:
            a, b = refs
            return lambda values, rows, precision: function(values[a], values[b], *fixed)
        if len(refs) == 3:
            a, b, c = refs
            return lambda values, rows, precision: function(values[a], values[b], values[c], *fixed)
    places = [(each.number, None) if isinstance(each, Ref) else (None, each) for each in op.arguments]
    return lambda values, rows, precision: function(
        *[given if number is None else values[number] for number, given in places]
    )


# What needs the number of rows, or the precision.


def _reshape(value: Ref, shape: tuple[Any, ...]) -> Compute:
    number, sized = value.number, _sizer(shape)
    return lambda values, rows, precision: values[number].reshape(sized(rows))


def _expand(value: Ref, shape: tuple[Any, ...]) -> Compute:
    number, sized = value.number, _sizer(shape)
    return lambda values, rows, precision: values[number].expand(sized(rows))


def _full(shape: tuple[Any, ...], number: float, kind: str) -> Compute:
    sized, fixed = _sizer(shape), _KINDS.get(kind)
    return lambda values, rows, precision: torch.full(sized(rows), number, dtype=fixed or precision)


def _constant(numbers: tuple[float, ...], shape: tuple[Any, ...], kind: str) -> Compute:
    fixed, exact = (
        _KINDS.get(kind),
        torch.tensor(numbers, dtype=_KINDS.get(kind, torch.float64)).reshape(shape),
    )
    return lambda values, rows, precision: exact.to(fixed or precision)


def _to(value: Ref, kind: str) -> Compute:
    number, fixed = value.number, _KINDS.get(kind)
    return lambda values, rows, precision: values[number].to(fixed or precision)


def _sizer(shape: tuple[Any, ...]) -> Callable[[int], tuple[int, ...]]:
    parts = [(size.times, 0) if isinstance(size, RowCount) else (0, size) for size in shape]
    return lambda rows: tuple(times * rows + fixed for times, fixed in parts)


_SHAPED: dict[str, Callable[..., Compute]] = {
    "reshape": _reshape,
    "expand": _expand,
    "full": _full,
    "constant": _constant,
    "to": _to,
}


# The others, as functions of values and numbers.


def _number_first(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For functions of PyTorch that take a number only in second place."""
    return lambda a, b: function(
        a if isinstance(a, Tensor) else torch.full((), a, dtype=b.dtype), _beside(a, b)
    )


def _beside(a: Any, b: Any) -> Tensor:
    return b if isinstance(b, Tensor) else torch.full((), b, dtype=a.dtype)


def _compare(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda a, b: (
        function(a, b) if isinstance(a, Tensor) else function(torch.full((), a, dtype=b.dtype), b)
    )


def _mm(a: Any, b: Any) -> Tensor:
    if isinstance(a, SparseRows):
        return a.times(b)
    if isinstance(b, SparseRows):
        return b.times_from_left(a)
    found = _own_mm(a, b)
    return torch.mm(a, b) if found is None else found


def _own_mm(a: Tensor, b: Tensor) -> Tensor | None:
    """The product of our kernels; None: PyTorch's is as good, or the only one."""
    if a.dtype != torch.float32 or not PRODUCTS_ARE_FAST:
        return None
    if len(a) >= _MANY and a.stride(1) == 1 and multiplies_rows(b.shape[1]):
        return torch.from_numpy(row_products(a.detach().numpy(), b.detach().numpy()))
    if len(b) >= _MANY and a.stride(0) == b.stride(1) == 1 and sums_products(len(a), b.shape[1]):
        return torch.from_numpy(summed_products(a.detach().t().numpy(), b.detach().numpy()))
    return None


def _addmm(bias: Tensor, a: Any, b: Tensor) -> Tensor:
    if isinstance(a, SparseRows):
        return a.times(b).add_(bias)
    found = _own_mm(a, b)
    return torch.addmm(bias, a, b) if found is None else found.add_(bias)


def _halve(value: Any) -> Any:
    return halved(value) if isinstance(value, Tensor) and value.dtype == torch.float32 else value


def _half_mm(a: Any, b: Any) -> Tensor:
    if isinstance(a, SparseRows) or isinstance(b, SparseRows):
        return _mm(_widened(a), _widened(b))
    product = half_product(a, b)
    return product.float() if product.dtype == torch.bfloat16 else product


def _half_addmm(bias: Tensor, a: Any, b: Tensor) -> Tensor:
    return _half_mm(a, b).add_(bias)


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


def _layer_norm_backward(
    gradient: Tensor, rows: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, *wanted: bool
) -> Any:
    # PyTorch looks at the bias only for its shape.
    bias = rows.new_empty(shape) if wanted[2] else None
    return aten.native_layer_norm_backward(gradient, rows, shape, mean, rstd, weight, bias, wanted)


def _log_softmax_backward(gradient: Tensor, out: Tensor, dim: int) -> Any:
    return aten._log_softmax_backward_data(gradient, out, dim, out.dtype)


def _softmax_backward(gradient: Tensor, out: Tensor, dim: int) -> Any:
    return aten._softmax_backward_data(gradient, out, dim, out.dtype)


def _nll_loss(logs: Tensor, y: Tensor, ignored: int) -> Tensor:
    return F.nll_loss(logs, y, reduction="sum", ignore_index=ignored)


def _nll_loss_backward(gradient: Tensor, logs: Tensor, y: Tensor, ignored: int) -> Any:
    return aten.nll_loss_backward(gradient, logs, y, None, 2, ignored, gradient)


def _slice(value: Tensor, dim: int, start: int, end: int, step: int) -> Any:
    return aten.slice(value, dim, start, end, step)


def _pad(value: Tensor, dim: int, before: int, after: int) -> Tensor:
    return F.pad(value, (*[0, 0] * (value.ndim - 1 - dim), before, after))


def _sum(value: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    return value.sum(dims, keepdim=keep) if dims else value


def _mean(value: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    return value.mean(dims, keepdim=keep) if dims else value


def _dropout(rows: Tensor, vertices: Tensor, key: Tensor, p: float, site: int) -> Tensor:
    # Not through PyTorch's dispatcher, which takes longer than a small interval's mask.
    seed, epoch = key.tolist()
    flat = as_rows(rows.flatten(1) if rows.ndim > 1 else rows[:, None])
    return torch.from_numpy(drop_rows(flat, vertices.numpy(), seed, epoch, p, site)).reshape(rows.shape)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "pow", "where", "clamp")},
    **{
        name: _number_first(getattr(torch, name))
        for name in ("maximum", "minimum", "logical_and", "logical_or")
    },
    **{name: _compare(getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{
        name: getattr(torch, name)
        for name in (
            *(
                "neg",
                "abs",
                "sign",
                "relu",
                "logical_not",
                "reciprocal",
                "floor",
                "ceil",
                "sqrt",
                "rsqrt",
                "exp",
            ),
            *(
                "expm1",
                "log",
                "log1p",
                "sin",
                "cos",
                "tanh",
                "sigmoid",
                "erf",
                "bmm",
                "permute",
            ),
            *("softmax", "log_softmax", "amax", "amin"),
        )
    },
    "mm": _mm,
    "addmm": _addmm,
    "halve": _halve,
    "half_mm": _half_mm,
    "half_addmm": _half_addmm,
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "elu": aten.elu,
    "gelu": lambda value, approximate: F.gelu(value, approximate=approximate),
    "softplus": F.softplus,
    **{
        name: getattr(aten, name)
        for name in (
            "threshold_backward",
            "tanh_backward",
            "sigmoid_backward",
            "elu_backward",
            "silu_backward",
        )
    },
    "softplus_backward": aten.softplus_backward,
    "leaky_relu_backward": lambda gradient, value, slope: aten.leaky_relu_backward(
        gradient, value, slope, False
    ),
    "gelu_backward": lambda gradient, value, how: aten.gelu_backward(gradient, value, approximate=how),
    "log_softmax_backward": _log_softmax_backward,
    "softmax_backward": _softmax_backward,
    "layer_norm": aten.native_layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "sum": _sum,
    "mean": _mean,
    "cat": torch.cat,
    "slice": _slice,
    "pad": _pad,
    "nll_loss": _nll_loss,
    "nll_loss_backward": _nll_loss_backward,
    "dropout": _dropout,
}

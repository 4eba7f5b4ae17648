"""Traced operations that compute."""

import operator
from collections.abc import Callable
from typing import Any

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Ref
from siafu.program.trace.aten_call import HANDLERS, Call, handles, spec_of
from siafu.program.trace.builder import Operand

# Element by element.


@handles("neg", "abs", "sign", "relu", "reciprocal", "floor", "ceil", "sqrt", "rsqrt", "exp", "expm1", "log")
@handles("log1p", "sin", "cos", "tanh", "sigmoid", "erf", "silu", "logical_not", "bitwise_not")
def _unary(call: Call, value: Operand) -> Ref:
    return call.emit(call.name.replace("bitwise", "logical"), call.builder.tensor(value))


HANDLERS["isnan"] = lambda call, value: call.emit("ne", value, value)


@handles("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or")
def _compare(call: Call, a: Operand, b: Operand) -> Any:
    if call.name.startswith("bitwise") and call.result.kind != "bool":
        raise call.refuse("on whole numbers, which a tensor program cannot hold: use it on booleans")
    return call.emit(call.name.replace("bitwise", "logical"), *_pair(call, a, b))


@handles("mul", "div", "pow", "maximum", "minimum", "add", "sub")
def _arithmetic(
    call: Call, a: Operand, b: Operand, alpha: float = 1, rounding_mode: str | None = None
) -> Any:
    if rounding_mode is not None:
        raise call.refuse("with rounding, which a tensor program cannot hold: divide, then floor")
    if alpha != 1:
        b = b * alpha if not isinstance(b, Ref) else _times(call, b, alpha)
    if not isinstance(a, Ref) and not isinstance(b, Ref):
        return _FOLD[call.name](a, b)
    kept = _unchanged(call, a, b)
    return call.emit(call.name, *_pair(call, a, b)) if kept is None else kept


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
    "maximum": max,
    "minimum": min,
}


def _unchanged(call: Call, a: Operand, b: Operand) -> Ref | None:
    """The operand that a multiplication by 1 leaves as it is."""
    for value, other in ((a, b), (b, a)):
        commutes = call.name == "mul" or (call.name == "div" and other is b)
        if commutes and isinstance(value, Ref) and not isinstance(other, (Ref, bool)) and other == 1:
            return value if call.builder.spec(value) == call.result else None
    return None


def _times(call: Call, value: Ref, factor: float) -> Ref:
    return call.builder.emit("mul", value, factor, result=call.builder.spec(value))


def _pair(call: Call, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Both operands; beside a float, PyTorch takes whole numbers and booleans as floats of the same precision."""
    specs = [call.builder.spec(each) for each in (a, b) if isinstance(each, Ref)]
    if "float" not in [spec.kind for spec in specs] and call.result.kind != "float":
        return a, b
    return _as_float(call, a), _as_float(call, b)


def _as_float(call: Call, value: Operand) -> Operand:
    return call.builder.to(value, "float") if isinstance(value, Ref) else value


@handles("rsub")
def _reversed_sub(call: Call, a: Operand, b: Operand, alpha: float = 1) -> Any:
    a = _times(call, a, alpha) if isinstance(a, Ref) and alpha != 1 else a
    return call.emit("sub", *_pair(call, b, a))


@handles("where")
def _where(call: Call, condition: Ref, a: Operand, b: Operand) -> Ref:
    if not isinstance(a, Ref) and not isinstance(b, Ref):
        a = call.builder.tensor(a, call.result.kind)
    return call.emit("where", condition, *_pair(call, a, b))


@handles("clamp", "hardtanh")
def _clamp(call: Call, value: Ref, low: Any = None, high: Any = None, **named: Any) -> Ref:
    low, high = named.get("min", low), named.get("max", high)
    if call.name == "hardtanh":
        low, high = -1 if low is None else low, 1 if high is None else high
    if isinstance(low, Ref) or isinstance(high, Ref):
        raise call.refuse("with limits that are not numbers: use torch.minimum and torch.maximum")
    return call.emit("clamp", value, low, high)


HANDLERS["clamp_min"] = lambda call, value, low: _clamp(call, value, low)
HANDLERS["clamp_max"] = lambda call, value, high: _clamp(call, value, None, high)
HANDLERS["elu"] = lambda call, value, alpha=1, scale=1, inner=1: call.emit("elu", value, alpha, scale, inner)
HANDLERS["gelu"] = lambda call, value, approximate="none": call.emit("gelu", value, approximate)
HANDLERS["leaky_relu"] = lambda call, value, slope=0.01: call.emit("leaky_relu", value, slope)
HANDLERS["softplus"] = lambda call, value, beta=1, limit=20: call.emit("softplus", value, beta, limit)


HANDLERS["gelu_backward"] = lambda call, gradient, value, approximate="none": call.emit(
    "gelu_backward", gradient, value, approximate
)


@handles("threshold_backward", "elu_backward", "silu_backward", "tanh_backward", "sigmoid_backward")
@handles("softplus_backward")
def _backward(call: Call, gradient: Operand, *arguments: Any) -> Ref:
    return call.emit(call.name, call.builder.tensor(gradient), *arguments)


@handles("leaky_relu_backward")
def _leaky_relu_backward(call: Call, gradient: Ref, value: Ref, slope: float, is_result: bool) -> Ref:
    # A result has its input's sign, unless the slope turns it round.
    if is_result and slope < 0:
        raise call.refuse("in place with a negative slope: leave inplace out")
    return call.emit("leaky_relu_backward", gradient, value, slope)


# Along dimensions.


@handles("_log_softmax", "_softmax")
def _softmax(call: Call, value: Ref, dim: int, half: bool) -> Ref:
    return call.emit(call.name.removeprefix("_"), value, *call.dims(value, dim))


@handles("_log_softmax_backward_data", "_softmax_backward_data")
def _softmax_backward(call: Call, gradient: Ref, out: Ref, dim: int, kind: Any) -> Ref:
    name = call.name.removeprefix("_").removesuffix("_data")
    return call.emit(name, call.builder.tensor(gradient), out, *call.dims(out, dim))


@handles("native_layer_norm")
def _layer_norm(call: Call, value: Ref, shape: Any, weight: Ref | None, bias: Ref | None, eps: float) -> Any:
    return call.several("layer_norm", value, shape, weight, bias, eps)


@handles("native_layer_norm_backward")
def _layer_norm_backward(call: Call, gradient: Ref, *arguments: Any) -> Any:
    value, shape, mean, rstd, weight, _, wanted = arguments
    return call.several("layer_norm_backward", gradient, value, shape, mean, rstd, weight, *wanted)


@handles("sum", "mean", "amax", "amin")
def _reduce(call: Call, value: Ref, dims: Any = None, keep: bool = False, **options: Any) -> Ref:
    # Some variants have the dimension's keeping among the options.
    keep = options.get("keepdim", keep)
    return call.emit(call.name, value, call.dims(value, dims), keep)


# Products.


HANDLERS["mm"] = HANDLERS["bmm"] = lambda call, a, b: call.emit(call.name, a, b)


@handles("addmm")
def _addmm(call: Call, bias: Ref, a: Ref, b: Ref, beta: float = 1, alpha: float = 1) -> Ref:
    if beta == alpha == 1:
        return call.emit("addmm", bias, a, b)
    product = call.emit("mm", a, b)
    scaled = product if alpha == 1 else _times(call, product, alpha)
    return call.emit("add", bias if beta == 1 else _times(call, bias, beta), scaled)


# What is ours, and the loss.


HANDLERS["siafu::dropout"] = lambda call, *arguments: call.emit("dropout", *arguments)


@handles("nll_loss_forward")
def _nll_loss(call: Call, logs: Ref, y: Ref, weight: Any, reduction: int, ignored: int) -> tuple[Any, None]:
    _check_nll(call, weight, reduction)
    spec = spec_of(call.value[0])
    return call.builder.emit("nll_loss", logs, y, ignored, result=spec), None


@handles("nll_loss_backward")
def _nll_loss_backward(
    call: Call, gradient: Operand, logs: Ref, y: Ref, weight: Any, reduction: int, ignored: int, total: Any
) -> Ref:
    _check_nll(call, weight, reduction)
    return call.emit("nll_loss_backward", call.builder.tensor(gradient), logs, y, ignored)


def _check_nll(call: Call, weight: Any, reduction: int) -> None:
    if weight is not None or reduction != 2:
        raise call.refuse('with class weights or without reduction="sum": sum the rows\' losses, unweighted')


# What would look at other rows.


@handles("native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit")
@handles("_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional")
def _refuse_batch_norm(call: Call, *_: Any, **__: Any) -> Any:
    raise BadInput(
        "the model uses batch norm, which mixes the rows of different vertices: use layer norm, which looks at each vertex alone"
    )

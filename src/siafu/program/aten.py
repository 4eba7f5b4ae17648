"""From PyTorch's traced operations to those of a tensor program."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx

from siafu.errors import BadInput
from siafu.program.builder import Builder, Operand
from siafu.program.tensor_program import Kind, Ref, Rows, Size, Spec

_MOST_NUMBERS = 4096  # of a constant: a program is text
_KINDS: dict[torch.dtype, Kind] = {
    torch.float32: "float",
    torch.float64: "float",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
}


def spec_of(tensor: Tensor) -> Spec:
    """What a traced value looks like."""
    if tensor.dtype not in _KINDS:
        raise BadInput(f"{tensor.dtype} appears in the model: its rows are float32 (or all float64) numbers")
    return Spec(_KINDS[tensor.dtype], tuple(size_of(size) for size in tensor.shape))


def size_of(size: int | SymInt) -> Size:
    """A traced size: a number, or a multiple of the number of rows."""
    if not isinstance(size, SymInt):
        return int(size)
    expression = size.node.expr
    if expression.is_number:
        return int(expression)
    symbols = list(expression.free_symbols)
    times = expression.coeff(symbols[0]) if len(symbols) == 1 else 0
    if times == 0 or expression != times * symbols[0]:
        raise BadInput(
            f"the model computes a size {expression} from the number of rows: a tensor phase computes each vertex alone"
        )
    return Rows(int(times))


def translate(traced: fx.GraphModule, inputs: list[tuple[str, Spec]]) -> tuple[Builder, list[Ref | None]]:
    """The operations of `traced`, and the values it returns; its placeholders are the inputs, in order."""
    builder = Builder(inputs)
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    known: dict[fx.Node, Any] = {node: Ref(number) for number, node in enumerate(placeholders)}
    for node in _live(traced.graph):
        if node.op == "get_attr":
            known[node] = _constant(builder, getattr(traced, str(node.target)))
        elif node.op == "call_function":
            known[node] = _call(builder, node, known)
        elif node.op == "output":
            returned: Any = node.args[0]
            listed = [None if each is None else known[each] for each in returned]
            return builder, [None if each is None else builder.tensor(each) for each in listed]
    raise AssertionError("a traced graph ends with its output")


def _live(graph: fx.Graph) -> list[fx.Node]:
    """What the output needs, in order; PyTorch's own pruning keeps memory that is never written."""
    *_, output = graph.nodes
    needed = {output}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in needed]


def name_of(target: Any) -> str:
    """An operation's name, its variants taken together."""
    name: str = target.name().split("::")[-1].split(".")[0]
    return name.removesuffix("_copy") if name != "_to_copy" else name


def _call(builder: Builder, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    value = node.meta.get("val")
    if isinstance(value, (SymInt, SymFloat, SymBool, int, float, bool)):
        return value
    if node.target is operator.getitem:
        parts, which = node.args
        return known[parts][which]  # type: ignore[index]
    name = name_of(node.target)
    if name not in _HANDLERS:
        raise BadInput(
            f"the model uses {name}, which a tensor program cannot hold: write it with the operations that "
            "siafu.program.operations lists, or move it out of the model"
        )
    arguments, options = fx.map_arg((node.args, node.kwargs), lambda each: known[each])
    return _HANDLERS[name](_Call(builder, name, value), *_plain(arguments), **options)


def _plain(argument: Any) -> Any:
    """Arguments with sizes as a program has them, lists as tuples."""
    if isinstance(argument, (list, tuple)):
        return tuple(_plain(each) for each in argument)
    if isinstance(argument, SymInt):
        return size_of(argument)
    if isinstance(argument, (SymFloat, SymBool)):
        raise BadInput(
            "the model computes with the number of rows: a tensor phase computes each vertex alone"
        )
    return argument


def _constant(builder: Builder, tensor: Tensor) -> Operand:
    spec = spec_of(tensor)
    if tensor.numel() > _MOST_NUMBERS:
        raise BadInput(
            f"the model holds {tensor.numel()} numbers outside of its parameters: register them as a buffer"
        )
    numbers = tensor.flatten().tolist()
    if tensor.ndim == 0 and spec.kind != "bool":
        return numbers[0]  # type: ignore[no-any-return]
    return builder.emit("constant", tuple(numbers), spec.shape, spec.kind, result=spec)


class _Call:
    """One traced operation: where it goes, what it is called and what it gives."""

    def __init__(self, builder: Builder, name: str, value: Any) -> None:
        self.builder, self.name, self.value = builder, name, value

    @property
    def result(self) -> Spec:
        return spec_of(self.value)

    def emit(self, name: str, *arguments: Any) -> Ref:
        return self.builder.emit(name, *arguments, result=self.result)

    def several(self, name: str, *arguments: Any) -> tuple[Ref, ...]:
        specs = tuple(None if each is None else spec_of(each) for each in self.value)
        return self.builder.emit_several(name, *arguments, results=specs)

    def refuse(self, why: str) -> BadInput:
        return BadInput(f"the model uses {self.name} {why}")

    def dims(self, value: Ref, given: Any = None) -> tuple[int, ...]:
        """Dimensions counted from the front; none given: all."""
        count = len(self.builder.spec(value).shape)
        listed = (given,) if isinstance(given, int) else given or range(count)
        return tuple(sorted(dim % count for dim in listed)) if count else ()


Handler = Callable[..., Any]
_HANDLERS: dict[str, Handler] = {}


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def note(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return note


# Element by element.


def _unary(name: str) -> Handler:
    return lambda call, value: call.emit(name, call.builder.tensor(value))


for _name in (
    *("neg", "abs", "sign", "relu", "reciprocal", "floor", "ceil", "sqrt", "rsqrt", "exp", "expm1", "log"),
    *("log1p", "sin", "cos", "tanh", "sigmoid", "erf", "silu", "logical_not"),
):
    _HANDLERS[_name] = _unary(_name)
_HANDLERS["bitwise_not"] = _unary("logical_not")


@_handles("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or")
def _compare(call: _Call, a: Operand, b: Operand) -> Any:
    if call.name.startswith("bitwise") and call.result.kind != "bool":
        raise call.refuse("on whole numbers, which a tensor program cannot hold: use it on booleans")
    return call.emit(call.name.replace("bitwise", "logical"), *_pair(call, a, b))


@_handles("mul", "div", "pow", "maximum", "minimum", "add", "sub")
def _arithmetic(
    call: _Call, a: Operand, b: Operand, alpha: float = 1, rounding_mode: str | None = None
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


def _unchanged(call: _Call, a: Operand, b: Operand) -> Ref | None:
    """The operand that a multiplication by 1 leaves as it is."""
    for value, other in ((a, b), (b, a)):
        commutes = call.name == "mul" or (call.name == "div" and other is b)
        if commutes and isinstance(value, Ref) and not isinstance(other, (Ref, bool)) and other == 1:
            return value if call.builder.spec(value) == call.result else None
    return None


def _times(call: _Call, value: Ref, factor: float) -> Ref:
    return call.builder.emit("mul", value, factor, result=call.builder.spec(value))


def _pair(call: _Call, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Both operands; beside a float, PyTorch takes whole numbers and booleans as floats of the same precision."""
    specs = [call.builder.spec(each) for each in (a, b) if isinstance(each, Ref)]
    if "float" not in [spec.kind for spec in specs] and call.result.kind != "float":
        return a, b
    return _as_float(call, a), _as_float(call, b)


def _as_float(call: _Call, value: Operand) -> Operand:
    return call.builder.to(value, "float") if isinstance(value, Ref) else value


@_handles("rsub")
def _reversed_sub(call: _Call, a: Operand, b: Operand, alpha: float = 1) -> Any:
    a = _times(call, a, alpha) if isinstance(a, Ref) and alpha != 1 else a
    return call.emit("sub", *_pair(call, b, a))


@_handles("where")
def _where(call: _Call, condition: Ref, a: Operand, b: Operand) -> Ref:
    if not isinstance(a, Ref) and not isinstance(b, Ref):
        a = call.builder.tensor(a, call.result.kind)
    return call.emit("where", condition, *_pair(call, a, b))


@_handles("clamp", "hardtanh")
def _clamp(call: _Call, value: Ref, low: Any = None, high: Any = None, **named: Any) -> Ref:
    low, high = named.get("min", low), named.get("max", high)
    if call.name == "hardtanh":
        low, high = -1 if low is None else low, 1 if high is None else high
    if isinstance(low, Ref) or isinstance(high, Ref):
        raise call.refuse("with limits that are not numbers: use torch.minimum and torch.maximum")
    return call.emit("clamp", value, low, high)


_HANDLERS["clamp_min"] = lambda call, value, low: _clamp(call, value, low)
_HANDLERS["clamp_max"] = lambda call, value, high: _clamp(call, value, None, high)
_HANDLERS["elu"] = lambda call, value, alpha=1, scale=1, inner=1: call.emit("elu", value, alpha, scale, inner)
_HANDLERS["gelu"] = lambda call, value, approximate="none": call.emit("gelu", value, approximate)
_HANDLERS["leaky_relu"] = lambda call, value, slope=0.01: call.emit("leaky_relu", value, slope)
_HANDLERS["softplus"] = lambda call, value, beta=1, limit=20: call.emit("softplus", value, beta, limit)


@_handles(
    "threshold_backward",
    "elu_backward",
    "silu_backward",
    "tanh_backward",
    "sigmoid_backward",
    "softplus_backward",
)
def _backward(call: _Call, *arguments: Any) -> Ref:
    return call.emit(
        call.name, *(call.builder.tensor(each) if k == 0 else each for k, each in enumerate(arguments))
    )


@_handles("gelu_backward")
def _gelu_backward(call: _Call, gradient: Ref, value: Ref, approximate: str = "none") -> Ref:
    return call.emit("gelu_backward", gradient, value, approximate)


@_handles("leaky_relu_backward")
def _leaky_relu_backward(call: _Call, gradient: Ref, value: Ref, slope: float, is_result: bool) -> Ref:
    # A result has its input's sign, unless the slope turns it round.
    if is_result and slope < 0:
        raise call.refuse("in place with a negative slope: leave inplace out")
    return call.emit("leaky_relu_backward", gradient, value, slope)


# Along dimensions.


@_handles("_log_softmax", "_softmax")
def _softmax(call: _Call, value: Ref, dim: int, half: bool) -> Ref:
    return call.emit(call.name.removeprefix("_"), value, *call.dims(value, dim))


@_handles("_log_softmax_backward_data", "_softmax_backward_data")
def _softmax_backward(call: _Call, gradient: Ref, out: Ref, dim: int, kind: Any) -> Ref:
    name = call.name.removeprefix("_").removesuffix("_data")
    return call.emit(name, call.builder.tensor(gradient), out, *call.dims(out, dim))


@_handles("native_layer_norm")
def _layer_norm(call: _Call, value: Ref, shape: Any, weight: Ref | None, bias: Ref | None, eps: float) -> Any:
    return call.several("layer_norm", value, shape, weight, bias, eps)


@_handles("native_layer_norm_backward")
def _layer_norm_backward(
    call: _Call,
    gradient: Ref,
    value: Ref,
    shape: Any,
    mean: Ref,
    rstd: Ref,
    weight: Any,
    bias: Any,
    wanted: Any,
) -> Any:
    return call.several("layer_norm_backward", gradient, value, shape, mean, rstd, weight, *wanted)


@_handles("sum", "mean", "amax", "amin")
def _reduce(call: _Call, value: Ref, dims: Any = None, keep: bool = False, **options: Any) -> Ref:
    # Some variants have the dimension's keeping among the options.
    keep = options.get("keepdim", keep)
    return call.emit(call.name, value, call.dims(value, dims), keep)


# Products.


@_handles("mm", "bmm")
def _product(call: _Call, a: Ref, b: Ref) -> Ref:
    return call.emit(call.name, a, b)


@_handles("addmm")
def _addmm(call: _Call, bias: Ref, a: Ref, b: Ref, beta: float = 1, alpha: float = 1) -> Ref:
    if beta == alpha == 1:
        return call.emit("addmm", bias, a, b)
    product = call.emit("mm", a, b)
    scaled = product if alpha == 1 else _times(call, product, alpha)
    return call.emit("add", bias if beta == 1 else _times(call, bias, beta), scaled)


# Shapes.


@_handles("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten")
def _reshape(call: _Call, value: Operand, *_: Any) -> Ref:
    return call.builder.reshape(call.builder.tensor(value), call.result.shape)


@_handles("expand")
def _expand(call: _Call, value: Operand, *_: Any, **__: Any) -> Ref:
    return call.builder.expand(call.builder.tensor(value), call.result.shape)


@_handles("alias", "clone", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "lift")
def _same(call: _Call, value: Operand, **_: Any) -> Operand:
    return value


@_handles("t")
def _t(call: _Call, value: Ref) -> Ref:
    return call.builder.permute(value, tuple(reversed(call.dims(value))))


@_handles("transpose")
def _transpose(call: _Call, value: Ref, a: int, b: int) -> Ref:
    order = list(call.dims(value))
    order[a], order[b] = order[b], order[a]
    return call.builder.permute(value, tuple(order))


@_handles("permute")
def _permute(call: _Call, value: Ref, order: tuple[int, ...]) -> Ref:
    return call.builder.permute(value, tuple(dim % len(order) for dim in order))


@_handles("cat")
def _cat(call: _Call, values: tuple[Ref, ...], dim: int = 0) -> Ref:
    return call.emit("cat", values, *call.dims(values[0], dim))


@_handles("slice")
def _slice(call: _Call, value: Ref, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Ref:
    (dim,) = call.dims(value, dim)
    length = call.builder.spec(value).shape[dim]
    start, end = 0 if start is None else start, 2**63 - 1 if end is None or end == length else end
    if isinstance(start, Rows) or isinstance(end, Rows):
        raise call.refuse("to take some rows out of many: a tensor phase computes each vertex alone")
    return call.builder.slice(value, dim, start, end, step)


@_handles("select")
def _select(call: _Call, value: Ref, dim: int, which: int) -> Ref:
    (dim,) = call.dims(value, dim)
    return call.builder.reshape(_one(call, value, dim, which), call.result.shape)


def _one(call: _Call, value: Ref, dim: int, which: int) -> Ref:
    length = call.builder.spec(value).shape[dim]
    if isinstance(length, Rows):
        raise call.refuse("to take one row out of many: a tensor phase computes each vertex alone")
    return call.builder.slice(value, dim, which % length, which % length + 1)


@_handles("unbind")
def _unbind(call: _Call, value: Ref, dim: int = 0) -> tuple[Ref, ...]:
    (dim,) = call.dims(value, dim)
    return tuple(
        call.builder.reshape(_one(call, value, dim, k), spec_of(each).shape)
        for k, each in enumerate(call.value)
    )


@_handles("split", "split_with_sizes", "chunk")
def _split(call: _Call, value: Ref, sizes: Any, dim: int = 0) -> tuple[Ref, ...]:
    (dim,) = call.dims(value, dim)
    parts, start = [], 0
    for each in call.value:
        length = spec_of(each).shape[dim]
        if isinstance(length, Rows):
            raise call.refuse("on the rows themselves: a tensor phase computes each vertex alone")
        parts.append(call.builder.slice(value, dim, start, start + length))
        start += length
    return tuple(parts)


@_handles("slice_backward")
def _slice_backward(call: _Call, gradient: Ref, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Ref:
    dim %= len(sizes)
    length = sizes[dim]
    if isinstance(length, Rows) or call.builder.spec(gradient).shape[dim] == length:
        return gradient
    if step != 1:
        raise call.refuse("of every other column, which a tensor program cannot hold: reshape, then select")
    before = max(start + length if start < 0 else start, 0)
    got = call.builder.spec(gradient).shape[dim]
    assert isinstance(got, int), "only the first dimension counts rows"
    return call.builder.pad(gradient, dim, before, length - before - got)


@_handles("select_backward")
def _select_backward(call: _Call, gradient: Ref, sizes: Any, dim: int, which: int) -> Ref:
    dim %= len(sizes)
    one = call.builder.reshape(gradient, (*sizes[:dim], 1, *sizes[dim + 1 :]))
    return call.builder.pad(one, dim, which % sizes[dim], sizes[dim] - 1 - which % sizes[dim])


# Writing into a part of a value, once PyTorch has made a new value of it.


@_handles("copy")
def _copy(call: _Call, old: Operand, new: Operand, *_: Any) -> Ref:
    return call.builder.expand(call.builder.to(call.builder.tensor(new), call.result.kind), call.result.shape)


@_handles("slice_scatter")
def _slice_scatter(
    call: _Call, value: Ref, part: Ref, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Ref:
    (dim,) = call.dims(value, dim)
    length, width = call.result.shape[dim], call.builder.spec(part).shape[dim]
    if width == length:
        return part
    if step != 1 or isinstance(length, Rows) or isinstance(width, Rows):
        raise call.refuse(
            "to write into some rows, or into every other column: put columns together with torch.cat"
        )
    first = 0 if start is None else start + length if start < 0 else start
    sides = (0, first), (first + width, length)
    before, after = (None if a == b else call.builder.slice(value, dim, a, b) for a, b in sides)
    return call.emit("cat", tuple(each for each in (before, part, after) if each is not None), dim)


@_handles("select_scatter")
def _select_scatter(call: _Call, value: Ref, part: Ref, dim: int, which: int) -> Ref:
    (dim,) = call.dims(value, dim)
    shape = call.result.shape
    return _slice_scatter(
        call, value, call.builder.reshape(part, (*shape[:dim], 1, *shape[dim + 1 :])), dim, which
    )


# Values out of nothing.


def _filled(call: _Call, filling: Any) -> Operand:
    spec = call.result
    if spec.shape == () and spec.kind != "bool":
        return filling  # type: ignore[no-any-return]
    return call.emit("full", spec.shape, int(filling) if isinstance(filling, bool) else filling, spec.kind)


_HANDLERS["full"] = lambda call, shape, filling, **_: _filled(call, filling)
_HANDLERS["full_like"] = lambda call, value, filling, **_: _filled(call, filling)
_HANDLERS["new_full"] = lambda call, value, shape, filling, **_: _filled(call, filling)
_HANDLERS["scalar_tensor"] = lambda call, filling, **_: _filled(call, filling)
_HANDLERS["zeros"] = _HANDLERS["zeros_like"] = lambda call, *_, **__: _filled(call, 0.0)
# Memory to be overwritten: what is in it is never read.
_HANDLERS["empty"] = _HANDLERS["empty_like"] = _HANDLERS["empty_permuted"] = _HANDLERS["zeros"]
_HANDLERS["new_empty"] = _HANDLERS["new_empty_strided"] = _HANDLERS["empty_strided"] = _HANDLERS["zeros"]
_HANDLERS["ones"] = _HANDLERS["ones_like"] = lambda call, *_, **__: _filled(call, 1.0)
_HANDLERS["new_zeros"], _HANDLERS["new_ones"] = _HANDLERS["zeros"], _HANDLERS["ones"]


@_handles("arange")
def _arange(call: _Call, *bounds: Any, **_: Any) -> Ref:
    if any(isinstance(each, Rows) for each in bounds):
        raise call.refuse("on the rows: which place a row has says nothing of its vertex")
    numbers = torch.arange(*bounds).tolist()
    return call.emit("constant", tuple(numbers), call.result.shape, call.result.kind)


@_handles("_to_copy")
def _to(call: _Call, value: Operand, **_: Any) -> Operand:
    return call.builder.to(value, call.result.kind) if isinstance(value, Ref) else value


# What is ours, and the loss.


@_handles("dropout")
def _dropout(call: _Call, rows: Ref, vertices: Ref, key: Ref, p: float, site: int) -> Ref:
    return call.emit("dropout", rows, vertices, key, p, site)


@_handles("nll_loss_forward")
def _nll_loss(call: _Call, logs: Ref, y: Ref, weight: Any, reduction: int, ignored: int) -> tuple[Any, None]:
    _check_nll(call, weight, reduction)
    spec = spec_of(call.value[0])
    return call.builder.emit("nll_loss", logs, y, ignored, result=spec), None


@_handles("nll_loss_backward")
def _nll_loss_backward(
    call: _Call, gradient: Operand, logs: Ref, y: Ref, weight: Any, reduction: int, ignored: int, total: Any
) -> Ref:
    _check_nll(call, weight, reduction)
    return call.emit("nll_loss_backward", call.builder.tensor(gradient), logs, y, ignored)


def _check_nll(call: _Call, weight: Any, reduction: int) -> None:
    if weight is not None or reduction != 2:
        raise call.refuse('with class weights or without reduction="sum": sum the rows\' losses, unweighted')


# What would look at other rows, or what a tensor program can do only when it does not train.


@_handles("_native_batch_norm_legit_no_training")
def _batch_norm(
    call: _Call, x: Ref, weight: Any, bias: Any, mean: Ref, var: Ref, momentum: float, eps: float
) -> tuple[Ref, None, None]:
    builder = call.builder
    spec = spec_of(call.value[0])
    width: Any = spec.shape[1]
    shape = (width, *(1 for _ in spec.shape[2:]))
    wide = Spec("float", (width,))
    scale = builder.emit("rsqrt", builder.emit("add", var, eps, result=wide), result=wide)
    out = builder.emit("sub", x, builder.reshape(mean, shape), result=spec)
    for name, factor in (("mul", scale), ("mul", weight), ("add", bias)):
        if factor is not None:
            out = builder.emit(name, out, builder.reshape(factor, shape), result=spec)
    return out, None, None


@_handles(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "native_batch_norm_backward",
)
def _refuse_batch_norm(call: _Call, *_: Any, **__: Any) -> Any:
    raise BadInput(
        "the model uses batch norm, which mixes the rows of different vertices: use layer norm, which looks at each vertex alone"
    )


HANDLED = frozenset(_HANDLERS)
"""Names of the traced operations that need no decomposition."""

"""The operations of tensor programs in NumPy alone, as PyTorch defines them."""

# mypy: disable-error-code="no-any-return"
# NumPy's operators on arrays of any type give Any: an array.

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from siafu.program.execute import numpy_dropout

Array = NDArray[Any]
Dims = tuple[int, ...]

_SHORT = 128  # numbers in a row


def either(condition: NDArray[np.bool_], yes: Array, no: Array) -> Array:
    """`np.where` for floats of one type and shape, bit by bit: `np.where` takes ten times as long where the processor cannot guess."""
    if not condition.shape == yes.shape == no.shape:
        return np.where(condition, yes, no)
    bits = f"u{yes.dtype.itemsize}"
    mask = condition.astype(bits)
    np.negative(mask, out=mask)
    mask &= yes.view(bits) ^ no.view(bits)
    mask ^= no.view(bits)
    return mask.view(yes.dtype)


def erf(x: Array) -> Array:
    """The error function, to the last digits of a float64: NumPy has none."""
    near, far = _erf_series()
    size = np.minimum(np.abs(x), 6.0)  # erf(6) is 1
    small = np.minimum(size, 1.0)
    inside = size * chebyshev.chebval(2 * small * small - 1, near)
    outside = chebyshev.chebval((np.maximum(size, 1.0) - 3.5) / 2.5, far)
    return np.copysign(np.where(size < 1, inside, outside), x).astype(x.dtype)


@cache
def _erf_series() -> tuple[Array, Array]:
    """Chebyshev series of erf(x) / x in x² up to 1, and of erf(x) from 1 to 6."""
    ratio = np.vectorize(lambda t: math.erf(math.sqrt(t)) / math.sqrt(t))
    near = chebyshev.chebinterpolate(lambda t: ratio((t + 1) / 2), 16)
    far = chebyshev.chebinterpolate(lambda t: np.vectorize(math.erf)(3.5 + 2.5 * t), 52)
    return near, far


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def elu(x: Array, alpha: float, scale: float, inner: float) -> Array:
    below = _times(np.minimum(x, 0), inner)
    below = _times(np.expm1(below, out=below), alpha * scale)
    return either(x > 0, x if scale == 1 else x * scale, below)


def elu_backward(g: Array, alpha: float, scale: float, inner: float, is_result: bool, x: Array) -> Array:
    slope = np.minimum(x, 0)
    if is_result:
        slope += alpha * scale
        slope = _times(slope, inner)
    else:
        slope = _times(slope, inner)
        slope = _times(np.exp(slope, out=slope), inner * alpha * scale)
    slope = np.multiply(slope, g, out=slope if slope.shape == g.shape else None)
    return either(x > 0, g if scale == 1 else g * scale, slope)


def _times(values: Array, factor: float) -> Array:
    """The product, in the memory of the values."""
    if factor != 1:
        values *= factor
    return values


_ROOT_2, _ROOT_2_OVER_PI, _CUBE = math.sqrt(2), math.sqrt(2 / math.pi), 0.044715


def gelu(x: Array, approximate: str) -> Array:
    inner = _tanh_of_cubic(x) if approximate == "tanh" else erf(x / _ROOT_2)
    return 0.5 * x * (1 + inner)


def _tanh_of_cubic(x: Array) -> Array:
    return np.tanh(_ROOT_2_OVER_PI * (x + _CUBE * x * x * x))


def gelu_backward(g: Array, x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        inner = _tanh_of_cubic(x)
        bent = _ROOT_2_OVER_PI * (1 + 3 * _CUBE * x * x) * (1 - inner * inner)
        slope = 0.5 * (1 + inner) + 0.5 * x * bent
    else:
        slope = 0.5 * (1 + erf(x / _ROOT_2)) + x * np.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return g * slope


def silu_backward(g: Array, x: Array) -> Array:
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


def softplus(x: Array, beta: float, limit: float) -> Array:
    return np.where(x * beta > limit, x, np.log1p(np.exp(np.minimum(x * beta, limit))) / beta)


def softplus_backward(g: Array, x: Array, beta: float, limit: float) -> Array:
    return np.where(x * beta > limit, g, g * sigmoid(x * beta))


def threshold_backward(g: Array, x: Array, limit: float) -> Array:
    if g.shape != x.shape:
        return np.where(x <= limit, 0, g)
    return numpy_dropout.masked(g, ~(x <= limit))


def addmm(bias: Array, a: Array, b: Array) -> Array:
    out: Array = a @ b
    if np.broadcast_shapes(bias.shape, out.shape) != out.shape:
        return bias + out
    out += bias
    return out


def halve(x: Array) -> Array:
    """Rounded to the nearest bfloat16, ties to even; NumPy has no such type, so it stays a float32."""
    if x.dtype != np.float32:
        return x
    bits = np.ascontiguousarray(x).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + (even + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, rounded)


def half_mm(a: Array, b: Array) -> Array:
    return halve(a @ b)


def half_addmm(bias: Array, a: Array, b: Array) -> Array:
    return bias + half_mm(a, b)


def sum_(x: Array, dims: Dims, keep: bool) -> Array:
    """Over the first or the last dimension as a product with ones: NumPy's own sums take several times as long."""
    if dims not in ((0,), (x.ndim - 1,), (-1,)) or x.ndim < 2 or x.size == 0 or x.dtype.kind != "f":
        return x.sum(axis=dims, keepdims=keep)
    if dims == (0,):
        found = np.ones(len(x), x.dtype) @ x.reshape(len(x), -1)
    else:
        found = x.reshape(-1, x.shape[-1]) @ np.ones(x.shape[-1], x.dtype)
    left = list(x.shape)
    left[dims[0]] = 1
    summed = found.reshape(left)
    return summed if keep else summed.squeeze(dims[0])


def mean(x: Array, dims: Dims, keep: bool) -> Array:
    return sum_(x, dims, keep) / x.dtype.type(math.prod(x.shape[dim] for dim in dims))


def _max(x: Array, dim: int) -> Array:
    """With the dimension kept. Many short rows side by side are quicker than one by one."""
    if x.ndim == 2 and dim in (1, -1) and x.shape[1] < _SHORT:
        return np.ascontiguousarray(x.T).max(axis=0)[:, None]
    return x.max(axis=dim, keepdims=True)


def log_softmax(x: Array, dim: int) -> Array:
    if x.size == 0:
        return x
    shifted = x - _max(x, dim)
    return shifted - np.log(sum_(np.exp(shifted), (dim,), True))


def softmax(x: Array, dim: int) -> Array:
    if x.size == 0:
        return x
    powers = np.exp(x - _max(x, dim))
    return powers / sum_(powers, (dim,), True)


def log_softmax_backward(g: Array, out: Array, dim: int) -> Array:
    return g - np.exp(out) * sum_(g, (dim,), True)


def softmax_backward(g: Array, out: Array, dim: int) -> Array:
    weighed = g * out
    return weighed - out * sum_(weighed, (dim,), True)


def layer_norm(x: Array, shape: Dims, weight: Any, bias: Any, eps: float) -> tuple[Array, Array, Array]:
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(axis=dims, keepdims=True)
    offset = x - mean
    rstd = 1 / np.sqrt((offset * offset).mean(axis=dims, keepdims=True) + eps)
    out = offset * rstd
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out, mean, rstd


def layer_norm_backward(
    g: Array, x: Array, shape: Dims, mean: Array, rstd: Array, weight: Any, *wanted: bool
) -> tuple[Array | None, Array | None, Array | None]:
    first = x.ndim - len(shape)
    rows, dims = tuple(range(first)), tuple(range(first, x.ndim))
    unit = (x - mean) * rstd
    of_x = None
    if wanted[0]:
        of_unit = g if weight is None else g * weight
        along = of_unit.mean(axis=dims, keepdims=True)
        across = (of_unit * unit).mean(axis=dims, keepdims=True)
        of_x = (of_unit - along - unit * across) * rstd
    return of_x, (g * unit).sum(axis=rows) if wanted[1] else None, g.sum(axis=rows) if wanted[2] else None


def slice_(x: Array, dim: int, start: int, end: int, step: int) -> Array:
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def pad(x: Array, dim: int, before: int, after: int) -> Array:
    shape = list(x.shape)
    shape[dim] += before + after
    out = np.zeros(shape, x.dtype)
    slice_(out, dim, before, before + x.shape[dim], 1)[...] = x
    return out


def nll_loss(logs: Array, y: Array, ignored: int) -> Array:
    rows = np.flatnonzero(y != ignored)
    return np.asarray(-logs[rows, y[rows]].sum())


def nll_loss_backward(g: Array, logs: Array, y: Array, ignored: int) -> Array:
    out = np.zeros_like(logs)
    rows = np.flatnonzero(y != ignored)
    out[rows, y[rows]] = -g
    return out


def dropout(rows: Array, vertices: Array, key: Array, p: float, site: int) -> Array:
    seed, epoch = key.tolist()
    flat = rows.reshape(len(rows), rows.size // max(len(rows), 1))
    kept = _keep_mask(vertices, flat.shape[1], seed, epoch, p, site)
    return numpy_dropout.drop(flat, kept, p).reshape(rows.shape)


def _keep_mask(vertices: Array, *drawn: Any) -> Array:
    """A backward pass drops by the mask of the forward pass that it has just computed again: it is drawn once."""
    global _last_mask
    last = _last_mask
    if last is None or last[0] is not vertices or last[1] != drawn:
        last = _last_mask = vertices, drawn, numpy_dropout.keep_mask(vertices, *drawn)
    return last[2]


_last_mask: tuple[Array, tuple[Any, ...], Array] | None = None


def clamp(x: Array, low: float | None, high: float | None) -> Array:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


_AS_NUMPY = ["add", "maximum", "minimum", "logical_and", "logical_or", "logical_not", "where", "abs", "sign"]
_AS_NUMPY += ["floor", "ceil", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh"]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _AS_NUMPY},
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "clamp": clamp,
    "neg": np.negative,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "erf": erf,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * sigmoid(x),
    "leaky_relu": lambda x, slope: either(x > 0, x, x * slope),
    "elu": elu,
    "gelu": gelu,
    "softplus": softplus,
    "threshold_backward": threshold_backward,
    "leaky_relu_backward": lambda g, x, slope: either(x > 0, g, g * slope),
    "tanh_backward": lambda g, out: g * (1 - out * out),
    "sigmoid_backward": lambda g, out: g * (out * (1 - out)),
    "elu_backward": elu_backward,
    "gelu_backward": gelu_backward,
    "silu_backward": silu_backward,
    "softplus_backward": softplus_backward,
    "log_softmax": log_softmax,
    "softmax": softmax,
    "log_softmax_backward": log_softmax_backward,
    "softmax_backward": softmax_backward,
    "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward,
    "mm": np.matmul,
    "addmm": addmm,
    "bmm": np.matmul,
    "halve": halve,
    "half_mm": half_mm,
    "half_addmm": half_addmm,
    "sum": sum_,
    "mean": mean,
    "amax": lambda x, dims, keep: x.max(axis=dims, keepdims=keep),
    "amin": lambda x, dims, keep: x.min(axis=dims, keepdims=keep),
    "permute": np.transpose,
    "cat": lambda *parts: np.concatenate(parts[:-1], axis=parts[-1]),
    "slice": slice_,
    "pad": pad,
    "nll_loss": nll_loss,
    "nll_loss_backward": nll_loss_backward,
    "dropout": dropout,
}

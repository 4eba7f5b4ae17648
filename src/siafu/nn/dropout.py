"""Counted dropout: whether a value is dropped is a pure function of (seed, epoch, site, vertex, column).

A *site* is one call of dropout in a model's forward pass, numbered from 0 in the order of the calls. No generator
has a state, so a row's mask is the same in the forward pass and in a backward pass that makes it again, on
any executor and under any partitioning.

    with counted_dropout(seed=0, epoch=3):
        out = model(graph)

The mask: a row has a 64-bit key, SplitMix64 of (seed, epoch, site, vertex); an element is dropped if a 32-bit
mix of its row's key and its column is below p · 2**32. `siafu.program.execute.numpy_dropout` is the same without Numba.
"""

import inspect
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from siafu.base.errors import BadInput
from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.kernels.rows import flat_view
from siafu.nn.tensors import as_rows

_COLUMN_STEP = np.uint32(0x9E3779B9)
_FIRST_FACTOR = np.uint32(0x21F0AAAD)
_SECOND_FACTOR = np.uint32(0xD35A2D97)


class CountedDropout(TorchFunctionMode):
    """While entered, `F.dropout` (and so `nn.Dropout`) and attention's dropout draw counted masks.

    key:      int64 [2], the seed and the epoch
    vertices: int64 [rows], the global id of each row; None: rows are vertices 0, 1, …
    sites:    how many sites there were since it was entered; a dropout that is off takes none

    Whatever else draws random numbers is refused: it would not be the same when computed again.
    """

    def __init__(self, key: torch.Tensor, vertices: torch.Tensor | None = None) -> None:
        super().__init__()
        self.key, self.vertices, self.sites = key, vertices, 0

    def __enter__(self) -> "CountedDropout":
        self.sites = 0
        super().__enter__()  # type: ignore[no-untyped-call]
        _active.stack.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _active.stack.pop()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def next_site(self) -> int:
        site, self.sites = self.sites, self.sites + 1
        return site

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in (F.dropout, torch.dropout, torch.dropout_):
            return self._dropout(func, *args, **kwargs)
        if _draws(func, args, kwargs):
            raise BadInput(
                f"{func.__name__} draws random numbers that cannot be drawn again: use torch.nn.functional.dropout, or draw outside of the model"
            )
        return func(*args, **kwargs)

    def _dropout(
        self, func: Any, input: torch.Tensor, p: float = 0.5, *flags: bool, **named: bool
    ) -> torch.Tensor:
        training = flags[0] if flags else named.get("training", named.get("train", True))
        in_place = func is torch.dropout_ or (flags[1] if len(flags) > 1 else named.get("inplace", False))
        if not training or p == 0 or not 0 < p <= 1:
            untouched: torch.Tensor = func(input, p, *flags, **named)
            return untouched
        if _active.on_edges:
            raise BadInput(
                "dropout in apply_edge cannot be counted, since its rows are edges: use it in transform or apply_vertex"
            )
        out = dropout(input, self._vertices_of(input), self.key, p, self.next_site())
        return input.copy_(out) if in_place else out

    def _vertices_of(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.arange(len(rows)) if self.vertices is None else self.vertices


class SampleDropout(CountedDropout):
    """The same where rows are the first of a sample's vertices, fewer from layer to layer."""

    def _vertices_of(self, rows: torch.Tensor) -> torch.Tensor:
        return super()._vertices_of(rows)[: len(rows)]


def counted_dropout(seed: int, epoch: int) -> CountedDropout:
    """A context in which one `model(graph)` draws the dropout masks of that seed and epoch."""
    return CountedDropout(torch.tensor([seed, epoch], dtype=torch.int64))


def attention_seed() -> int:
    """The seed of one attention gather's dropout: counted inside `CountedDropout`, else from PyTorch's generator."""
    if not _active.stack:
        return int(torch.randint(2**62, ()).item())
    counting = _active.stack[-1]
    seed, epoch = counting.key.tolist()
    return int(site_key(seed, epoch, counting.next_site()))


class on_edges:  # noqa: N801 (a context manager reads as a word)
    """While entered, rows are edges: a counted dropout is refused."""

    def __enter__(self) -> None:
        self._before, _active.on_edges = _active.on_edges, True

    def __exit__(self, *error: Any) -> None:
        _active.on_edges = self._before


class _Active(threading.local):
    """What is entered on this thread."""

    def __init__(self) -> None:
        self.stack: list[CountedDropout] = []
        self.on_edges = False


_active = _Active()

# fmt: off
_RANDOM = frozenset({
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm",
    "bernoulli", "bernoulli_", "multinomial", "normal", "normal_", "poisson",
    "binomial", "uniform_", "random_", "exponential_", "cauchy_", "log_normal_",
    "geometric_", "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout",
    "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "native_dropout",
    "dropout1d", "dropout2d", "dropout3d", "gumbel_softmax", "rrelu", "rrelu_",
    "scaled_dot_product_attention", "multi_head_attention_forward",
})
# fmt: on


def _draws(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether this call draws random numbers; a dropout of features that is off does not."""
    if getattr(func, "__name__", "") not in _RANDOM:
        return False
    if func is F.scaled_dot_product_attention:
        return bool(args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0))
    try:
        given = inspect.signature(func).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return True
    given.apply_defaults()
    share = given.arguments.get("p", given.arguments.get("dropout_p", 1.0))
    return bool(given.arguments.get("training", True) and share > 0)


# `torch.library.custom_op` would import torch._dynamo at the first call: 1.3 s of CPU time in a first epoch.
torch.library.define(
    "siafu::dropout", "(Tensor rows, Tensor vertices, Tensor key, float p, int site) -> Tensor"
)


def dropout(
    rows: torch.Tensor, vertices: torch.Tensor, key: torch.Tensor, p: float, site: int
) -> torch.Tensor:
    """`rows` with the share `p` of its values put to zero and the rest divided by 1 - p.

    rows:     [rows, …] float32 or float64; all but the first dimension are columns
    vertices: int64 [rows], global ids
    key:      int64 [2], the seed and the epoch
    """
    dropped: torch.Tensor = torch.ops.siafu.dropout(rows, vertices, key, p, site)
    return dropped


@torch.library.impl("siafu::dropout", "CPU")
def _dropout_of(
    rows: torch.Tensor, vertices: torch.Tensor, key: torch.Tensor, p: float, site: int
) -> torch.Tensor:
    _check(rows, vertices, key)
    seed, epoch = key.tolist()
    flat = as_rows(rows.reshape(len(rows), -1) if rows.numel() else rows.reshape(len(rows), 0))
    out = drop_rows(flat, vertices.contiguous().numpy(), seed, epoch, p, site)
    return torch.from_numpy(out).reshape(rows.shape)


def drop_rows(
    rows: NDArray[Any],
    vertices: NDArray[np.int64],
    seed: int,
    epoch: int,
    p: float,
    site: int,
    *,
    bias: NDArray[Any] | None = None,
    more: NDArray[Any] | None = None,
    shift: NDArray[Any] | None = None,
    factor: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The mask on [rows, columns] whose columns are next to each other; runs on the calling thread.

    bias: [columns], more: [rows, columns]; where one is given, they are added before, in this order, and what is negative
          then is put to zero
    shift, factor: [columns] both or none; rows are (rows + shift) · factor before all that
    """
    out = np.empty(rows.shape, rows.dtype)
    if out.size:
        scale = rows.dtype.type(kept_scale(p))
        key = site_key(seed, epoch, site)
        flat, step = flat_view(rows)
        others, further = (None, 0) if more is None else flat_view(more)
        more_of = bias, others, further, shift, factor
        _drop_range(flat, step, *more_of, vertices, key, _threshold(p), scale, 0, len(rows), out)
    return out


def undrop_rows(
    gradient: NDArray[Any], more: NDArray[Any] | None, dropped: NDArray[Any], scale: float
) -> NDArray[Any]:
    """Gradients of what a dropout of rectified numbers read, from what it gave: `scale` times those of its positive numbers.

    gradient, dropped: [rows, columns] whose columns are next to each other; more: is added to the gradient before
    """
    out = np.empty(gradient.shape, gradient.dtype)
    if out.size:
        flat, step = flat_view(gradient)
        others, further = (None, 0) if more is None else flat_view(more)
        _undrop_range(flat, step, others, further, *flat_view(dropped), gradient.dtype.type(scale), out)
    return out


def site_key(seed: int, epoch: int, site: int) -> np.uint64:
    """What the keys of a site's rows are drawn from."""
    return np.uint64(_site_key(*(np.uint64(number % 2**64) for number in (seed, epoch, site))))


def _threshold(p: float) -> np.uint32:
    return np.uint32(min(round(p * 2**32), 2**32 - 1))


def kept_scale(p: float) -> float:
    """Factor of what is not dropped."""
    return 1.0 / (1.0 - p) if p < 1 else 0.0


@kernel
def _site_key(seed: Any, epoch: Any, site: Any) -> Any:
    return mix(mix(mix(seed + GOLDEN) + epoch + GOLDEN) + site + GOLDEN)


@kernel
def _drop_range(
    flat: Any,
    step: int,
    bias: Any,
    more: Any,
    further: int,
    shift: Any,
    factor: Any,
    vertices: Any,
    site: Any,
    threshold: Any,
    scale: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Rows first to last of `out`: those of `flat`, `step` apart, under their masks; those of `more` are `further` apart."""
    columns = out.shape[1]
    zero = scale - scale  # of its type: a literal would make it float64
    for i in range(first, last):
        key = mix(site + np.uint64(vertices[i]) * GOLDEN)
        low, high = np.uint32(key), np.uint32(key >> np.uint64(32))
        source, target = flat[i * step : i * step + columns], out[i]
        added = source if more is None else more[i * further : i * further + columns]
        # Numba widens every result to 64 bits: cast back at once, or half of a vector register is wasted.
        for c in range(columns):
            z = np.uint32(low + np.uint32(c) * _COLUMN_STEP)
            z = np.uint32(np.uint32(z ^ (z >> np.uint32(16))) * _FIRST_FACTOR)
            z = np.uint32(z ^ high)
            z = np.uint32(np.uint32(z ^ (z >> np.uint32(15))) * _SECOND_FACTOR)
            z = np.uint32(z ^ (z >> np.uint32(15)))
            value = source[c]
            if shift is not None and factor is not None:
                value = (value + shift[c]) * factor[c]
            if bias is not None:
                value += bias[c]
            if more is not None:
                value += added[c]
            if bias is not None or more is not None:
                value = zero if value <= zero else value
            target[c] = value * scale if z >= threshold else zero


@kernel
def _undrop_range(
    flat: Any, step: int, more: Any, further: int, dropped: Any, dropped_step: int, scale: Any, out: Any
) -> None:
    columns = out.shape[1]
    zero = scale - scale
    for i in range(len(out)):
        source, target = flat[i * step : i * step + columns], out[i]
        added = source if more is None else more[i * further : i * further + columns]
        given = dropped[i * dropped_step : i * dropped_step + columns]
        for c in range(columns):
            value = source[c]
            if more is not None:
                value += added[c]
            # Not a number is not below: it goes through, so that a divergence is seen.
            target[c] = zero if given[c] <= zero else value * scale


def _check(rows: torch.Tensor, vertices: torch.Tensor, key: torch.Tensor) -> None:
    if vertices.dtype != torch.int64 or vertices.shape != rows.shape[:1]:
        raise BadInput(
            f"dropout of {list(rows.shape)} rows got vertices {vertices.dtype} {list(vertices.shape)}: give an int64 id for each row"
        )
    if key.dtype != torch.int64 or key.shape != (2,):
        raise BadInput(f"dropout's key is {key.dtype} {list(key.shape)}: give int64 [2], seed and epoch")


def _like(rows: torch.Tensor, vertices: torch.Tensor, key: torch.Tensor, p: float, site: int) -> torch.Tensor:
    return torch.empty_like(rows, memory_format=torch.contiguous_format)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, vertices, key, ctx.p, ctx.site = inputs
    ctx.save_for_backward(vertices, key)


def _backward(ctx: Any, gradient: torch.Tensor) -> Any:
    vertices, key = ctx.saved_tensors
    return dropout(gradient, vertices, key, ctx.p, ctx.site), None, None, None, None


torch.library.register_fake("siafu::dropout", _like)
torch.library.register_autograd("siafu::dropout", _backward, setup_context=_keep_for_backward)

"""Operations that PyTorch takes apart while it traces, because a tensor program does not have them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions

from siafu.base.errors import BadInput
from siafu.program.trace.aten import HANDLED, name_of


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own for what a tensor program does not hold, and ours where it has none."""
    table = {op: how for op, how in core_aten_decompositions().items() if name_of(op) not in HANDLED}
    aten = torch.ops.aten
    return table | {
        aten.var.correction: _var,
        aten.var_mean.correction: _var_mean,
        aten.std.correction: lambda x, dim=None, **options: _var(x, dim, **options).sqrt(),
        aten.linalg_vector_norm.default: _norm,
        aten.constant_pad_nd.default: _pad,
        aten.clamp_min.Tensor: torch.maximum,
        aten.clamp_max.Tensor: torch.minimum,
        aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy,
        aten.square.default: lambda x: x * x,
        aten.relu6.default: lambda x: torch.clamp(x, 0, 6),
    }


def _var_mean(x: Tensor, dim: Any = None, *, keepdim: bool = False, **options: Any) -> tuple[Tensor, Tensor]:
    mean = x.mean(dim=list(range(x.ndim)) if dim is None else dim, keepdim=keepdim)
    return _var(x, dim, keepdim=keepdim, **options), mean


def _var(x: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Tensor:
    dims = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int) else dim
    count = 1
    for each in dims:
        count = count * x.shape[each]
    offset = x - x.mean(dim=dims, keepdim=True)
    return (offset * offset).sum(dims, keepdim=keepdim) / (count - (1 if correction is None else correction))


def _norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    dims: list[int] = list(range(x.ndim)) if dim is None else list(dim)
    if ord == 2:
        return (x * x).sum(dims, keepdim=keepdim).sqrt()
    if ord == 1:
        return x.abs().sum(dims, keepdim=keepdim)
    if ord == float("inf"):
        return x.abs().amax(dims, keepdim=keepdim)
    raise BadInput(f"the model uses a norm of order {ord}: 1, 2 and inf can be held by a tensor program")


def _binary_cross_entropy(
    x: Tensor, y: Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Tensor:
    if weight is not None or pos_weight is not None or reduction != 2:
        raise BadInput(
            'binary_cross_entropy_with_logits has weights or not reduction="sum": sum the rows\' losses, unweighted'
        )
    # From 40 up log(1 + exp(x)) is x, to the last bit of a float64.
    return (torch.nn.functional.softplus(x, 1, 40) - x * y).sum()


def _pad(x: Tensor, pads: list[int], value: float = 0) -> Tensor:
    """A negative width cuts: that is how padding is differentiated."""
    for back, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        dim = x.ndim - 1 - back
        if min(before, after) < 0:
            start, stop = max(-before, 0), x.shape[dim] - max(-after, 0)
            x = x.narrow(dim, start, stop - start)
        sides = [
            [x.new_full((*x.shape[:dim], width, *x.shape[dim + 1 :]), value)] if width > 0 else []
            for width in (before, after)
        ]
        if any(sides):
            x = torch.cat([*sides[0], x, *sides[1]], dim)
    return x

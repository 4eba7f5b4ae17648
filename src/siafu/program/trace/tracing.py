"""Tracing: make_fx by one thread at a time, on tensors that have a shape only, with refusals in our words."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)

from siafu.base.errors import BadInput

_one_at_a_time = threading.RLock()
_REPLACED = ("__call__", "__getattr__")


def traced(function: Callable[..., Any], *inputs: Any, **options: Any) -> fx.GraphModule:
    """The operations that `function` does on `inputs`; `options` are make_fx's.

    While make_fx traces, it replaces methods that all modules share: whatever happens, `nn.Module` is afterwards as it was.
    """
    with _one_at_a_time:
        before: Mapping[str, Any] = {name: getattr(nn.Module, name) for name in _REPLACED}
        try:
            return make_fx(function, **options)(*inputs)
        finally:
            for name, method in before.items():
                setattr(nn.Module, name, method)


def shapes_only() -> FakeTensorMode:
    """A mode for `without_numbers`: one symbol stands for the number of rows of all tensors in it."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def without_numbers(mode: FakeTensorMode, tensor: Tensor, *, rows: bool = False) -> Tensor:
    """A stand-in for `tensor` that has a shape only; with `rows`, any number of them."""
    sizes = [DimDynamic.STATIC] * tensor.ndim
    if rows:
        sizes[0] = DimDynamic.DUCK  # sizes that are alike get one symbol
    context: Any = StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=[None] * tensor.ndim)
    return mode.from_tensor(tensor, symbolic_context=context)


@contextmanager
def refusing() -> Iterator[None]:
    """PyTorch's ways to say that a function cannot be traced, in ours."""
    try:
        yield
    except UnsupportedOperatorException as error:
        raise BadInput(
            f"the model uses {error.func}, which cannot be traced: write it with other operations"
        ) from error
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        name: Any = getattr(error, "func", "a condition")
        raise BadInput(
            f"what the model computes depends on the rows' values ({name}): use torch.where instead of a condition"
        ) from error

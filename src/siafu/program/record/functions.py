"""PyTorch's functions in a recorded model, where they know of vertices or where what they are made of mixes rows."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from siafu.base.errors import BadInput
from siafu.program.record.row_axis import row_axis


class _Listener(Protocol):
    def features(self) -> Tensor: ...

    def vertices(self) -> Tensor: ...

    def name_of(self, tensor: Any) -> str | None: ...


class FunctionsRecorded(TorchFunctionMode):
    """While a model is recorded on some rows: numbers of their vertices, tensors with as many rows, and what `no_grad` cuts.

    of_vertices: names of the weights that have a row for each vertex
    """

    def __init__(self, listener: _Listener, of_vertices: frozenset[str]) -> None:
        super().__init__()
        self._listener, self._of_vertices = listener, of_vertices

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = self._called(func, args, kwargs or {})
        # A model is recorded with gradients allowed: where they are not, its own `no_grad` is on.
        return found if torch.is_grad_enabled() else _detached(found)

    def _called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is torch.arange and _counts_from_zero(args, kwargs):
            return self._listener.vertices()
        if func in _FILLED and _has_symbol(args):
            return self._filled(func, args, kwargs)
        if func in (F.embedding, torch.embedding) and all(map(_stands_for_itself, args[:2])):
            return self._embedded(func, args, kwargs)
        if func is Tensor.__getitem__ and _stands_for_itself(args[0]):
            return _columns(*args)
        if func in _IN_OTHER_WORDS:
            return _IN_OTHER_WORDS[func](*args, **kwargs)
        return func(*args, **kwargs)

    def _filled(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        """A tensor of one number with a row for each vertex."""
        values = [args[-1] if len(args) > 1 else kwargs["fill_value"]] if func is torch.full else []
        sizes = args[:-1] if func is torch.full and len(args) > 1 else args
        sizes = tuple(sizes[0]) if isinstance(sizes[0], (tuple, list)) else sizes
        dtype = kwargs.get("dtype") or self._listener.features().dtype
        value = _FILLED[func] if not values else values[0]
        return self._listener.features().new_full(sizes, value, dtype=dtype)

    def _embedded(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        """Rows of an embedding: each vertex's own, or those that categories pick."""
        given = dict(zip(("input", "weight"), args, strict=False)) | kwargs
        index, weight = given["input"], given["weight"]
        if func is torch.embedding:
            index, weight = weight, index
        if self._listener.name_of(weight) not in self._of_vertices:
            _refuse_rules(args[2:], kwargs)
            return _of_categories(index, weight)
        if index is not self._listener.vertices():
            raise BadInput(
                "an nn.Embedding with a row for each vertex is called with other numbers than the vertices' own: call it with "
                "torch.arange(x.size(0)) or data.n_id, or take its .weight"
            )
        return weight  # type: ignore[no-any-return]


@contextmanager
def own_gradients_refused() -> Iterator[None]:
    """Refuse a `torch.autograd.Function` of the model's own on this thread: what is recorded has PyTorch's gradients."""
    thread, apply = threading.get_ident(), torch.autograd.Function.__dict__["apply"]

    def refused(kind: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread and not kind.__module__.startswith(("torch.", "siafu.")):
            raise BadInput(
                f"the model's {kind.__name__} is a torch.autograd.Function, whose own backward cannot be recorded: "
                "write it with PyTorch's functions, such as x + (y - x).detach()"
            )
        return apply.__get__(None, kind)(*args, **kwargs)

    setattr(torch.autograd.Function, "apply", classmethod(refused))  # noqa: B010 (of a class that is not ours)
    try:
        yield
    finally:
        setattr(torch.autograd.Function, "apply", apply)  # noqa: B010


def _detached(found: Any) -> Any:
    if isinstance(found, (tuple, list)) and not hasattr(found, "_fields"):
        return type(found)(_detached(each) for each in found)
    if _stands_for_itself(found) and found.is_floating_point():
        return found.detach()
    return found


def _stands_for_itself(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch's, and no stand-in for values of edges."""
    return isinstance(value, Tensor) and type(value).__module__.startswith("torch")


def _of_categories(index: Tensor, weight: Tensor) -> Tensor:
    """Rows that categories pick, as a product: where these are features, ones and zeros are made once, and zeros are skipped."""
    categories = torch.arange(weight.shape[0], dtype=index.dtype)
    chosen = (index.unsqueeze(-1) == categories).to(weight.dtype)
    return chosen @ weight


def _refuse_rules(more: Any, kwargs: dict[str, Any]) -> None:
    if any(each not in (None, False) for each in more[:2]) or kwargs.get("padding_idx") is not None:
        raise BadInput("an nn.Embedding with padding_idx or max_norm cannot be recorded: build it without")


def _counts_from_zero(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether `torch.arange` gives the number of every row."""
    numbers = [*args, *(kwargs[name] for name in ("start", "end", "step") if name in kwargs)]
    if len(numbers) == 1:
        return isinstance(numbers[0], torch.SymInt)
    return numbers[0] == 0 and isinstance(numbers[1], torch.SymInt) and numbers[2:] in ([], [1])


def _has_symbol(args: Any) -> bool:
    return any(
        isinstance(size, torch.SymInt)
        for each in args
        for size in (each if isinstance(each, (tuple, list)) else [each])
    )


def _stacked(tensors: Any, dim: int = 0) -> Tensor:
    """`torch.stack`, which PyTorch makes of rows one below the other."""
    every = list(tensors)
    if all(row_axis(each) is None for each in every):
        return torch.stack(every, dim)
    at = dim if dim >= 0 else dim + every[0].ndim + 1
    return torch.cat([each.unsqueeze(at) for each in every], at)


def _repeated(tensor: Tensor, *sizes: Any) -> Tensor:
    """`Tensor.repeat`: where a value is repeated for every vertex, it is looked at again."""
    times = tuple(sizes[0]) if isinstance(sizes[0], (tuple, list)) else sizes
    found = tensor.reshape((1,) * (len(times) - tensor.ndim) + tuple(tensor.shape))
    if row_axis(tensor) is None and _has_symbol(times):
        shape = [
            count if isinstance(count, torch.SymInt) and found.shape[dim] == 1 else -1
            for dim, count in enumerate(times)
        ]
        found = found.expand(shape)
        times = tuple(1 if isinstance(count, torch.SymInt) else count for count in times)
    for dim, count in enumerate(times):
        found = torch.cat([found] * count, dim) if count != 1 else found
    return found


def _columns(tensor: Tensor, index: Any) -> Tensor:
    """`tensor[index]`: columns that a list names are slices side by side."""
    parts = list(index) if isinstance(index, tuple) else [index]
    lists = [place for place, each in enumerate(parts) if _is_numbers(each)]
    if len(lists) != 1 or not all(map(_is_whole, _without(parts, lists))):
        return tensor[index]
    (place,) = lists
    at = place - len(parts) + tensor.ndim if Ellipsis in parts[:place] else place
    size = tensor.shape[at]
    if at == row_axis(tensor) or not all(-size <= which < size for which in parts[place]):
        return tensor[index]
    return torch.cat([tensor.narrow(at, which % size, 1) for which in parts[place]], at)


def _is_numbers(part: Any) -> bool:
    return isinstance(part, list) and len(part) > 0 and all(type(each) is int for each in part)


def _is_whole(part: Any) -> bool:
    return part is Ellipsis or (isinstance(part, slice) and part == slice(None))


def _without(parts: list[Any], places: list[int]) -> list[Any]:
    return [each for place, each in enumerate(parts) if place not in places]


def _weight_normed(direction: Tensor, size: Tensor, dim: int = 0) -> Tensor:
    """`torch._weight_norm`, of which PyTorch differentiates the parts itself."""
    others = [each for each in range(direction.ndim) if each != dim % direction.ndim]
    return direction * (size / direction.square().sum(others, keepdim=True).sqrt())


def cosine_similarity(one: Tensor, other: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """`F.cosine_similarity`, which PyTorch computes in place."""
    sizes = [each.square().sum(dim, keepdim=True).sqrt().clamp(min=eps) for each in (one, other)]
    return (one / sizes[0] * (other / sizes[1])).sum(dim)


_FILLED: dict[Any, Any] = {torch.zeros: 0, torch.ones: 1, torch.full: None, torch.empty: 0}
_IN_OTHER_WORDS: dict[Any, Callable[..., Tensor]] = {
    torch.stack: _stacked,
    Tensor.repeat: _repeated,
    torch._weight_norm: _weight_normed,
    torch.cosine_similarity: cosine_similarity,
}

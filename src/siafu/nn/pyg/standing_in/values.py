"""EdgeToken and EdgeValue: tensors without numbers that stand for `edge_index` and for values of edges."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from siafu.base.errors import BadInput
from siafu.nn.pyg.expression import (
    MANY,
    EdgeCall,
    End,
    Node,
    Number,
    Side,
    leaves,
    mapped,
)
from siafu.nn.pyg.session import refusal, session


def without_memory(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor that has a shape and a type only, whatever records or traces at the time."""
    with _disable_current_modes():
        return torch.empty(shape, dtype=dtype, device="meta")


def _wrapper(kind: type, meta: Tensor) -> Any:
    with _disable_current_modes():
        return Tensor._make_wrapper_subclass(kind, meta.shape, dtype=meta.dtype, device=torch.device("cpu"))


def _bare(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


class EdgeValue(Tensor):
    """A value for each edge, not computed: functions of it give others, until an aggregation looks at what they are."""

    node: Node

    @staticmethod
    def __new__(cls, node: Node) -> "EdgeValue":
        made: EdgeValue = _wrapper(cls, node.meta)
        made.node = node
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"EdgeValue{list(self.node.shape)}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise refusal(
            f"{_bare(func)} of values of edges", "only functions of each edge alone can be taken apart"
        )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        from siafu.nn.pyg.standing_in.value_functions import OF_VALUES

        special = OF_VALUES.get(_bare(function))
        if special is not None:
            found = special(*args, **kwargs)
            if found is not NotImplemented:
                return found
        name = _bare(function)
        if name.endswith("_") and not name.endswith("__") and isinstance(args[0], EdgeValue):
            # In place: the handle gets a new expression, and those that were made of the old one keep it.
            plain = getattr(Tensor, name[:-1], None) or getattr(F, name[:-1])
            args[0].node = _called(plain, args, kwargs).node
            return args[0]
        args, kwargs, in_place = _out_of_place(function, args, kwargs)
        found = _called(function, args, kwargs)
        if in_place:
            args[0].node = found.node
        return found


def _out_of_place(function: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], bool]:
    """The arguments of an activation that would change its input in place, so that it does not; whether it would."""
    if getattr(function, "__module__", "") != F.__name__:
        return args, kwargs, False
    given = inspect.signature(function).bind(*args, **kwargs)
    if not given.arguments.get("inplace", False) or not isinstance(args[0], EdgeValue):
        return args, kwargs, False
    given.arguments["inplace"] = False
    return given.args, given.kwargs, True


def _called(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """The node of a call, or what it gives that is no tensor, such as a size."""
    name = _bare(function)
    if name in _ACROSS:
        raise refusal(
            f"{name} of values of edges mixes different edges", "use it on vertices, outside of `message`"
        )
    if any(isinstance(each, EdgeToken) for each in leaves((args, kwargs))):
        raise refusal(f"{name} of edge_index", "what depends on the vertices' numbers cannot be taken apart")
    with _disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
        try:
            out = function(*mapped(_meta, args), **mapped(_meta, kwargs))
        except (RuntimeError, IndexError) as error:
            raise refusal(
                f"{name} of values of edges and of vertices together ({' '.join(str(error).split())})",
                "give `propagate` the vertices' rows, and take them as x_i and x_j",
            ) from error
    given, named = mapped(_noded, args), mapped(_noded, kwargs)
    if isinstance(out, Tensor):
        return EdgeValue(EdgeCall(_checked(out, name), function, given, named))
    if isinstance(out, (tuple, list)) and any(isinstance(each, Tensor) for each in out):
        parts = (
            EdgeValue(EdgeCall(_checked(each, name), function, given, named, k)) for k, each in enumerate(out)
        )
        return tuple(parts) if type(out) is not list else list(parts)
    return out


def _checked(out: Tensor, name: str) -> Tensor:
    if sum(size == MANY for size in out.shape) != 1:
        raise refusal(f"{name} mixes the values of different edges", "only an aggregation may do that")
    return out


def _meta(value: Any) -> Any:
    if isinstance(value, EdgeValue):
        return value.node.meta
    if isinstance(value, Tensor):
        return torch.empty(tuple(int(size) for size in value.shape), dtype=value.dtype, device="meta")
    return value


def _noded(value: Any) -> Any:
    return value.node if isinstance(value, EdgeValue) else value


def node_of(value: Any) -> Node:
    """The expression behind a value of edges; a number stands for itself on all edges."""
    if isinstance(value, EdgeValue):
        return value.node
    raise refusal(f"an aggregation of {type(value).__name__}", "aggregate what `message` gives for each edge")


class EdgeToken(Tensor):
    """Stands for `edge_index`, or for one of its rows.

    removed: stored self-loops are left out
    added:   self-loops that every vertex got besides
    end:     which row it is; None: both
    turned:  the targets come first: `edge_index.flip(0)`
    """

    removed: bool
    added: int
    end: Side | None
    turned: bool

    @staticmethod
    def __new__(
        cls, removed: bool = False, added: int = 0, end: Side | None = None, turned: bool = False
    ) -> "EdgeToken":
        made: EdgeToken = _wrapper(cls, _token_meta(end))
        made.removed, made.added, made.end, made.turned = removed, added, end, turned
        return made

    @property
    def sides(self) -> tuple[Side, Side]:
        """Ends of the edges as the graph stores them: of the first row, where messages come from, and of the second."""
        return ("target", "source") if self.turned else ("source", "target")

    def row(self, side: Side) -> "EdgeToken":
        """One end of each edge."""
        return EdgeToken(self.removed, self.added, side, self.turned)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"EdgeToken(removed={self.removed}, added={self.added}, end={self.end})"

    @property
    def one_loop_each(self) -> bool:
        """Whether every vertex has exactly one self-loop."""
        return self.added == 1 and (self.removed or session().graph.num_self_loops == 0)

    @property
    def stored_only(self) -> bool:
        """Whether the edges are those of the graph."""
        return self.added == 0 and (not self.removed or session().graph.num_self_loops == 0)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise _changed(_bare(func).removesuffix(".default"))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from siafu.nn.pyg.standing_in.token_functions import OF_TOKENS

        if function == Tensor.device.__get__:
            return torch.device("cpu")
        name, kwargs = _bare(function), kwargs or {}
        found = OF_TOKENS[name](*args, **kwargs) if name in OF_TOKENS else NotImplemented
        if found is not NotImplemented:
            return found
        if name in _LOOKS and isinstance(args[0], EdgeToken):
            with _disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
                return function(_token_meta(args[0].end), *args[1:], **kwargs)
        raise _changed(name)


_LOOKS = frozenset(
    {"size", "dim", "numel", "__get__", "is_floating_point", "__len__", "ndimension", "stride"}
)


def _token_meta(end: Side | None) -> Tensor:
    return without_memory(*((2, MANY) if end is None else (MANY,)), dtype=torch.int64)


def _changed(name: str) -> BadInput:
    if "sparse" in name:
        return refusal(
            "a sparse matrix of edge_index",
            "aggregate with MessagePassing, scatter or index_add over edge_index[1]",
        )
    return refusal(
        f"{name} of edge_index inside forward",
        "train on the graph that you want: change data.edge_index before",
    )


def lifted(rows: Tensor, side: Side, axis: int = 0) -> EdgeValue:
    """The rows of the vertices at one end of each edge; axis: the dimension that counts vertices, and then edges."""
    if isinstance(rows, EdgeValue):
        raise refusal(
            "values of edges taken as rows of vertices", "give `propagate` rows of vertices for x_i and x_j"
        )
    if axis:
        first = lifted(rows.movedim(axis, 0), side)
        return first.movedim(0, axis)  # type: ignore[return-value]
    meta = without_memory(MANY, *(int(size) for size in rows.shape[1:]), dtype=rows.dtype)
    return EdgeValue(End(meta, rows, side))


def number(value: float, dtype: torch.dtype) -> EdgeValue:
    return EdgeValue(Number(without_memory(MANY, dtype=dtype), value))


_ACROSS = frozenset({"instance_norm", "cumsum", "cumprod", "sort", "argsort", "flip", "roll", "median"})

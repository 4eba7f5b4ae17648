"""EdgeToken and EdgeValue: tensors without numbers that stand for `edge_index` and for values of edges."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from siafu.base.errors import BadInput
from siafu.nn.pyg.expression import (
    MANY,
    EdgeCall,
    End,
    Filled,
    IsLoop,
    Never,
    Node,
    Number,
    Side,
    StoredType,
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
        special = _SPECIAL.get(_bare(function))
        if special is not None:
            found = special(*args, **kwargs)
            if found is not NotImplemented:
                return found
        name = _bare(function)
        if name.endswith("_") and not name.endswith("__") and isinstance(args[0], EdgeValue):
            # In place: the handle gets a new expression, and those that were made of the old one keep it.
            args[0].node = _called(getattr(Tensor, name[:-1]), args, kwargs).node
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
        name, kwargs = _bare(function), kwargs or {}
        found = _TOKEN[name](*args, **kwargs) if name in _TOKEN else NotImplemented
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


# Functions that take tokens.


def _token_item(value: Tensor, index: Any) -> Any:
    if isinstance(value, EdgeToken):
        if value.end is None and index in (0, 1) and not isinstance(index, (bool, Tensor)):
            return value.row(value.sides[index])
        if value.end is None and isinstance(index, list) and index == [1, 0]:
            return _token_flipped(value, 0)
        if isinstance(index, tuple) and len(index) == 2 and index[0] == slice(None):
            return _token_as_column(value) if index[1] is None else _masked_token(value, index[1])
        return NotImplemented
    if isinstance(index, EdgeToken) and index.end is not None:
        return lifted(value, index.end)
    return NotImplemented


def _masked_token(token: EdgeToken, mask: Any) -> Any:
    if (
        isinstance(mask, EdgeValue)
        and isinstance(mask.node, IsLoop)
        and mask.node.negated
        and token.added == 0
    ):
        return EdgeToken(removed=True, turned=token.turned)
    raise refusal(
        "edges picked by a mask or by numbers (edge_index[:, …])",
        "train on the graph with these edges alone; for types of edges use RGCNConv with edge_type",
    )


def _token_select(rows: Tensor, dim: int, index: Any) -> Any:
    if isinstance(index, EdgeToken) and index.end is not None and dim in (0, -rows.ndim):
        return lifted(rows, index.end)
    return NotImplemented


def _token_compared(negated: bool) -> Callable[..., Any]:
    def compared(one: Any, other: Any) -> Any:
        both = isinstance(one, EdgeToken) and isinstance(other, EdgeToken)
        if both and {one.end, other.end} == {"source", "target"}:
            return EdgeValue(IsLoop(without_memory(MANY, dtype=torch.bool), negated))
        return NotImplemented

    return compared


def _token_ends(token: Any, dim: int = 0) -> Any:
    if token.end is not None:
        return NotImplemented
    return tuple(token.row(side) for side in token.sides)


def _token_itself(token: Any, *args: Any, **kwargs: Any) -> Any:
    return token if isinstance(token, EdgeToken) else NotImplemented


def _token_as_column(token: Any, *args: Any, **kwargs: Any) -> Any:
    """One end of each edge, written once for every column, as `scatter` of PyTorch wants it: the same numbers."""
    return token if isinstance(token, EdgeToken) and token.end is not None else NotImplemented


def _token_flipped(token: Any, *dims: Any, **kwargs: Any) -> Any:
    """The edges turned round: sums over them can be taken where each stands both ways."""
    if not isinstance(token, EdgeToken) or token.end is not None:
        return NotImplemented
    if (kwargs.get("dims", dims[0] if dims else None)) not in (0, [0], (0,), -2, [-2], (-2,)):
        return NotImplemented
    refuse_turned("flip of edge_index")
    return EdgeToken(token.removed, token.added, turned=not token.turned)


def refuse_turned(what: str) -> None:
    """Refuse to go along the edges backwards, unless each stands both ways with the same weight."""
    graph = session().graph
    if graph.edge_attr is not None or graph.edge_type is not None:
        raise refusal(f"{what} with edge_attr or edge_type", "train on the graph with its edges turned round")
    if not graph.is_symmetric:
        raise refusal(
            f"{what} on a directed graph",
            "train on the graph with its edges turned round, or with each edge both ways (to_undirected)",
        )


def _scattered(reduce: str, in_place: bool) -> Callable[..., Any]:
    def scattered(out: Tensor, dim: int, index: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or dim not in (0, -out.ndim) or not isinstance(index, EdgeToken):
            return NotImplemented
        from siafu.nn.pyg.aggregate import aggregate

        found = out + aggregate(node_of(src), reduce, index)
        return out.copy_(found) if in_place else found

    return scattered


def _scatter_reduced(in_place: bool) -> Callable[..., Any]:
    def scattered(
        out: Tensor, dim: int, index: Any, src: Any, reduce: str = "sum", *, include_self: bool = True
    ) -> Any:
        if dim not in (0, -out.ndim) or not isinstance(index, EdgeToken):
            return NotImplemented
        from siafu.nn.pyg.aggregate import aggregate, count

        edges = count(index).reshape(-1, *[1] * (out.ndim - 1))
        has = edges.clamp(max=1)
        found = aggregate(node_of(src), "sum" if reduce == "mean" and include_self else reduce, index)
        if include_self and reduce in ("sum", "mean"):
            found = out + found if reduce == "sum" else (out + found) / (edges + 1)
        else:
            if include_self:
                found = torch.maximum(out, found) if reduce == "amax" else torch.minimum(out, found)
            found = found * has + out * (1 - has)
        return out.copy_(found) if in_place else found

    return scattered


_TOKEN: dict[str, Callable[..., Any]] = {
    "__getitem__": _token_item,
    "index_select": _token_select,
    "eq": _token_compared(False),
    "__eq__": _token_compared(False),
    "ne": _token_compared(True),
    "__ne__": _token_compared(True),
    "unbind": _token_ends,
    "__iter__": lambda token: iter(_token_ends(token)),
    **dict.fromkeys(("to", "long", "contiguous", "cpu", "clone", "detach"), _token_itself),
    **dict.fromkeys(("unsqueeze", "expand", "expand_as", "repeat", "view", "reshape"), _token_as_column),
    "flip": _token_flipped,
    "scatter_reduce": _scatter_reduced(False),
    "scatter_reduce_": _scatter_reduced(True),
    **{
        f"{name}{mark}": _scattered("sum", bool(mark))
        for name in ("scatter_add", "index_add")
        for mark in ("", "_")
    },
}


# Functions of values of edges that are no plain calls.


def _item(value: Any, index: Any) -> Any:
    if isinstance(index, EdgeToken):
        return NotImplemented
    if isinstance(index, EdgeValue) and isinstance(index.node, IsLoop):
        if index.node.negated:
            return value  # of tokens without self-loops: `remove_self_loops`
        from siafu.nn.pyg.on_vertices import at_loops

        # A copy: it may be changed in place before it is put back.
        return at_loops(node_of(value)).clone()
    if isinstance(index, EdgeValue) and isinstance(index.node, StoredType):
        return _picked_by_type(index, value)
    return NotImplemented


def _picked_by_type(
    kinds: EdgeValue, table: Any, padding_idx: int | None = None, max_norm: float | None = None, *rest: Any
) -> Any:
    """The row of a table for each edge's type: `embedding(edge_type, table)`, `table[edge_type]`."""
    plain = isinstance(table, Tensor) and not isinstance(table, (EdgeValue, EdgeToken))
    if not plain or not isinstance(kinds.node, StoredType):
        return NotImplemented
    if padding_idx is not None or max_norm is not None:
        raise refusal("an embedding of edge_type with padding_idx or max_norm", "leave them out")
    _refuse_types(int(table.shape[0]))
    meta = without_memory(MANY, *(int(size) for size in table.shape[1:]), dtype=table.dtype)
    return EdgeValue(EdgeCall(meta, rows_by_type, (kinds.node, table), {}))


def rows_by_type(kinds: Tensor, table: Tensor) -> Tensor:
    """A product with one 1 in each row, which tensor programs have, instead of a choice of rows, which they have not."""
    one = (kinds[:, None] == torch.tensor(range(table.shape[0]))).to(table.dtype)
    return (one @ table.reshape(table.shape[0], -1)).reshape(-1, *table.shape[1:])


def _one_hot(kinds: Any, num_classes: int = -1) -> Any:
    if not isinstance(kinds.node, StoredType) or num_classes < 1:
        return NotImplemented
    _refuse_types(num_classes)
    meta = without_memory(MANY, num_classes, dtype=torch.int64)
    return EdgeValue(EdgeCall(meta, ones_by_type, (kinds.node, num_classes), {}))


def ones_by_type(kinds: Tensor, count: int) -> Tensor:
    """[k, count]: 1 in the column of each edge's type; in the type that is computed in."""
    return (kinds[:, None] == torch.tensor(range(count))).to(kinds.dtype)


def _refuse_types(rows: int) -> None:
    most = session().graph.num_relations
    if rows < most:
        raise refusal(
            f"rows for {rows} types of edges", f"the graph has {most} types: give a row for each of them"
        )


def _set_item(value: Any, index: Any, new: Any) -> Any:
    if not (isinstance(index, EdgeValue) and isinstance(index.node, IsLoop) and not index.node.negated):
        raise refusal("values of some edges set by their numbers", "use torch.where on what each edge has")
    rows = new if isinstance(new, Tensor) else session().x.new_full((session().rows,), float(new))
    value.node = Filled(value.node.meta, value.node, rows)
    return None


def _compared(one: Any, other: Any) -> Any:
    # Where weights are normalised, infinite factors of vertices have been put to zero before they came to the edges.
    if isinstance(one, EdgeValue) and isinstance(other, float) and math.isinf(other):
        return EdgeValue(Never(without_memory(*one.node.meta.shape, dtype=torch.bool)))
    return NotImplemented


def _masked_fill(value: Any, mask: Any, new: Any) -> Any:
    return value if isinstance(mask, EdgeValue) and isinstance(mask.node, Never) else NotImplemented


def _new(value: float | None) -> Callable[..., Any]:
    def made(like: Any, *size: Any, **options: Any) -> Any:
        shape = tuple(size[0]) if len(size) >= 1 and isinstance(size[0], Sequence) else size
        what = value
        if what is None:
            shape, what = tuple(size[0]), size[1]
        dtype = options.get("dtype") or like.dtype
        if shape and type(shape[0]) is int and shape[0] == MANY:
            return filled_with(what, shape, dtype)
        return session().x.new_full(shape, what, dtype=dtype)

    return made


def _like(value: float) -> Callable[..., Any]:
    return lambda like, **options: filled_with(
        value, tuple(like.node.meta.shape), options.get("dtype") or like.dtype
    )


def filled_with(value: float, shape: Sequence[int], dtype: torch.dtype) -> EdgeValue:
    """The same number on all edges, in any shape."""
    whole = EdgeValue(Number(without_memory(MANY, dtype=dtype), value))
    wide: Any = whole if len(shape) == 1 else whole.reshape(MANY, *[1] * (len(shape) - 1)).expand(*shape)
    return cast(EdgeValue, wide)


def _greatest(value: Any, *args: Any, **kwargs: Any) -> Any:
    """Of all edges: known of the normalised Laplacian, whose self-loops weigh 1 and whose edges weigh no more than 0."""
    if args or kwargs:
        return NotImplemented
    known = getattr(value, "greatest", None)
    if known is None:
        raise refusal("max over all edges", "give the number itself, such as lambda_max")
    return torch.full((), known, dtype=value.dtype)


def _same(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


_SPECIAL: dict[str, Callable[..., Any]] = {
    "__getitem__": _item,
    "__setitem__": _set_item,
    "eq": _compared,
    "__eq__": _compared,
    "masked_fill": _masked_fill,
    "masked_fill_": _masked_fill,
    "max": _greatest,
    "embedding": _picked_by_type,
    "index_select": lambda table, dim, kinds: _picked_by_type(kinds, table) if dim == 0 else NotImplemented,
    "one_hot": _one_hot,
    "new_ones": _new(1.0),
    "new_zeros": _new(0.0),
    "new_full": _new(None),
    "ones_like": _like(1.0),
    "zeros_like": _like(0.0),
    "contiguous": _same,
    "requires_grad_": _same,
    "scatter_reduce": _scatter_reduced(False),
    "scatter_reduce_": _scatter_reduced(True),
    **{
        f"{name}{mark}": _scattered("sum", bool(mark))
        for name in ("scatter_add", "index_add")
        for mark in ("", "_")
    },
}

_ACROSS = frozenset(
    {"batch_norm", "instance_norm", "cumsum", "cumprod", "sort", "argsort", "flip", "roll", "median"}
)

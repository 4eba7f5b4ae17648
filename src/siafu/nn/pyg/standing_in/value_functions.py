"""PyTorch's functions of values of edges that are no plain calls, while stand-ins go through a model, by their names."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from siafu.nn.pyg.expression import MANY, EdgeCall, Filled, IsLoop, Never, Number, StoredType
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.token_functions import reduced_into, scattered_into
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue, node_of, without_memory


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
    kinds: EdgeValue,
    table: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *rest: Any,
    **options: Any,
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


def _put_together(values: Any, dim: int = 0) -> Any:
    """`torch.cat` along the edges: values of the stored ones, and then those of a self-loop for each vertex."""
    if dim != 0 or len(values) != 2:
        return NotImplemented
    stored, loops = values
    plain = isinstance(loops, Tensor) and not isinstance(loops, (EdgeValue, EdgeToken))
    if not plain or not isinstance(stored, EdgeValue) or loops.shape[0] != session().rows:
        return NotImplemented
    if loops.shape[1:] != stored.node.meta.shape[1:]:
        return NotImplemented
    return EdgeValue(Filled(stored.node.meta, stored.node, loops))


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


def _batch_norm(*args: Any, **kwargs: Any) -> Any:
    from siafu.nn.pyg.edge_norms import batch_norm

    return batch_norm(*args, **kwargs)


def _same(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


OF_VALUES: dict[str, Callable[..., Any]] = {
    "__getitem__": _item,
    "__setitem__": _set_item,
    "eq": _compared,
    "__eq__": _compared,
    "masked_fill": _masked_fill,
    "masked_fill_": _masked_fill,
    "max": _greatest,
    "cat": _put_together,
    "batch_norm": _batch_norm,
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
    "scatter_reduce": reduced_into(False),
    "scatter_reduce_": reduced_into(True),
    **{
        f"{name}{mark}": scattered_into("sum", bool(mark))
        for name in ("scatter_add", "index_add")
        for mark in ("", "_")
    },
}

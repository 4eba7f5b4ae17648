"""PyTorch's functions of `edge_index` and its rows while stand-ins go through a model, by their names."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from siafu.nn.pyg.expression import MANY, IsLoop
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue, lifted, node_of, without_memory


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


def scattered_into(reduce: str, in_place: bool) -> Callable[..., Any]:
    def scattered(out: Tensor, dim: int, index: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or dim not in (0, -out.ndim) or not isinstance(index, EdgeToken):
            return NotImplemented
        from siafu.nn.pyg.aggregate import aggregate

        found = out + aggregate(node_of(src), reduce, index)
        return out.copy_(found) if in_place else found

    return scattered


def reduced_into(in_place: bool) -> Callable[..., Any]:
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


OF_TOKENS: dict[str, Callable[..., Any]] = {
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
    "scatter_reduce": reduced_into(False),
    "scatter_reduce_": reduced_into(True),
    **{
        f"{name}{mark}": scattered_into("sum", bool(mark))
        for name in ("scatter_add", "index_add")
        for mark in ("", "_")
    },
}

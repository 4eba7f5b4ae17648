"""PyG's `MessagePassing` and `Aggregation` as they are while stand-ins go through a model."""

from inspect import Parameter
from typing import Any

import torch
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.token_functions import refuse_turned
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue, lifted


def propagate(layer: Any, edge_index: Any, size: Any = None, **given: Any) -> Any:
    """`MessagePassing.propagate`, with `message` called on values that are not computed."""
    edge_index = _checked(layer, edge_index)
    _check_features(layer, given)
    known = _collected(layer._user_args, edge_index, given, layer.node_dim)
    take = layer.inspector.collect_param_data
    session().edges = edge_index
    messages = layer.message(**take("message", known))
    session().edges = None
    out = layer.aggregate(messages, **take("aggregate", known))
    return layer.update(out, **take("update", known))


def edge_updater(layer: Any, edge_index: Any, size: Any = None, **given: Any) -> Any:
    edge_index = _checked(layer, edge_index)
    _check_features(layer, given)
    known = _collected(layer._edge_user_args, edge_index, given, layer.node_dim)
    return layer.edge_update(**layer.inspector.collect_param_data("edge_update", known))


def refuse_overrides(layer: Any) -> None:
    """Refuse a layer with a `propagate` or `edge_updater` of its own: Siafu's take their place, and would ignore it.

    PyG puts generated functions in the place of its own methods; those of a class body are named after the class.
    """
    for name in ("propagate", "edge_updater"):
        for made in (getattr(type(layer), name, None), getattr(type(layer), f"_orig_{name}", None)):
            if made is not None and made.__qualname__ not in (name, f"MessagePassing.{name}"):
                raise BadInput(
                    f"{type(layer).__name__}: an override of {name}: override `message`, `aggregate` or `update` instead"
                )


def _checked(layer: Any, edge_index: Any) -> EdgeToken:
    """The edges in the direction that the layer's messages go."""
    if not isinstance(edge_index, EdgeToken):
        raise refusal(
            f"propagate over {type(edge_index).__name__} instead of edge_index",
            "give it the edge_index that forward got; adj_t and other graphs cannot be taken apart",
        )
    if layer.decomposed_layers > 1:
        raise refusal("decomposed_layers", "set decomposed_layers=1")
    if layer.explain:
        raise refusal("explain", "train first, and explain PyG's own model afterwards")
    if any(
        getattr(layer, name) for name in vars(layer) if name.endswith("_hooks") and name.startswith(_HOOKS)
    ):
        raise refusal("hooks of message passing", "remove them")
    if layer.flow == "source_to_target":
        return edge_index
    refuse_turned(f"flow={layer.flow!r}")
    return EdgeToken(edge_index.removed, edge_index.added, turned=not edge_index.turned)


def _check_features(layer: Any, given: dict[str, Any]) -> None:
    """Refuse features of edges of another width than PyG's layer was built for; a model may have mapped them before."""
    wanted = getattr(layer, "edge_dim", None)
    if wanted is None or "edge_attr" not in given or not type(layer).__module__.startswith("torch_geometric"):
        return
    features = given["edge_attr"]
    if features is None and session().graph.edge_attr is not None:
        return  # PyG's layers go without them
    columns = 0 if features is None else int(features.shape[-1]) if features.ndim > 1 else 1
    if columns == wanted:
        return
    there = f"edge_attr has {columns} columns" if columns else "the graph has no edge_attr"
    build = f"edge_dim={columns}" if columns else "no edge_dim"
    raise refusal(f"edge_dim={wanted}, but {there}", f"build it with {build}, or give data.edge_attr")


_HOOKS = ("_propagate", "_message", "_aggregate", "_edge_update")


def _collected(names: list[str], token: EdgeToken, given: dict[str, Any], node_dim: int) -> dict[str, Any]:
    """Arguments of `message`, `aggregate` and `update` by name."""
    for name, rows in given.items():
        both = isinstance(rows, (tuple, list)) and all(isinstance(each, Tensor) for each in rows)
        if both and rows[0].shape[0] != rows[-1].shape[0]:
            raise refusal(
                f"sources and targets with rows of their own for {name!r} (bipartite)",
                "make one graph of all vertices, with x for all of them",
            )
    found = {name: _argument(name, given, node_dim, token) for name in names}
    rows = session().rows
    from_, to = token
    return found | {
        "edge_index": token,
        "adj_t": None,
        "ptr": None,
        "edge_index_i": to,
        "edge_index_j": from_,
        "index": to,
        "size": [rows, rows],
        "size_i": rows,
        "size_j": rows,
        "dim_size": rows,
    }


def _argument(name: str, given: dict[str, Any], node_dim: int, token: EdgeToken) -> Any:
    if name[-2:] not in ("_i", "_j"):
        return given.get(name, Parameter.empty)
    rows = given.get(name[:-2], Parameter.empty)
    if isinstance(rows, (tuple, list)):
        rows = rows[0 if name.endswith("_j") else 1]
    if not isinstance(rows, Tensor):
        return rows
    return lifted(rows, token.sides[0 if name.endswith("_j") else 1], _axis(rows, node_dim))


def _axis(rows: Tensor, node_dim: int) -> int:
    """Which dimension counts vertices: PyG's layers say it from the end, but those with heads count from the front."""
    axis = node_dim if node_dim >= 0 else max(rows.ndim + node_dim, 0)
    for found in dict.fromkeys((axis, 0)):
        if found < rows.ndim and rows.shape[found] == session().rows:
            return found
    raise refusal(
        f"rows of shape {list(rows.shape)}, which has no dimension for vertices",
        f"let vertices come first, as in [vertices, …]; rows of an nn.Embedding are those of {session().graph.num_vertices} vertices",
    )


def _combined(aggregation: Any, found: list[Tensor]) -> Any:
    """`MultiAggregation.combine`; PyG stacks results before the vertices, where no row is one vertex's."""
    if aggregation.mode not in ("sum", "mean", "max", "min", "std", "var", "logsumexp"):
        return aggregation.combine(found)
    out = getattr(torch, aggregation.mode)(torch.stack(found, 1), dim=1)
    return out[0] if isinstance(out, tuple) else out


_PLAIN = ("Sum", "Mean", "Max", "Min", "Mul", "Var", "Std", "Softmax", "PowerMean", "DegreeScaler")
"""Aggregations whose refusals speak for themselves; others fail where they sort or count messages."""


def aggregation_call(original: Any, several: Any) -> Any:
    """`Aggregation.__call__`, without its looks at numbers."""

    def call(
        aggregation: Any,
        x: Any,
        index: Any = None,
        ptr: Any = None,
        dim_size: Any = None,
        dim: int = -2,
        **more: Any,
    ) -> Any:
        if not isinstance(x, EdgeValue):
            return original(aggregation, x, index, ptr, dim_size, dim, **more)
        if isinstance(aggregation, several):
            return _combined(aggregation, [each(x, index, ptr, dim_size, dim) for each in aggregation.aggrs])
        axis = x.node.axis if dim == -2 else dim
        try:
            return aggregation.forward(x, index=index, ptr=ptr, dim_size=dim_size, dim=axis, **more)
        except (BadInput, ValueError) as error:
            name = type(aggregation).__name__
            if isinstance(error, BadInput) and name.startswith(_PLAIN):
                raise
            raise refusal(
                f"{name} wants the messages of each vertex in order, which has no gather",
                "use sum, mean, max, min, var, std, softmax or powermean",
            ) from error

    return call

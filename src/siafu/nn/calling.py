"""Calling a model: with the graph alone, with rows of features as well, or as PyG's models are called."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.tensors import features

RunModel = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def takes_features(model: nn.Module) -> bool:
    """Whether a model is called as model(graph, x); else it gets them from `siafu.nn.features`."""
    try:
        inspect.signature(model.forward).bind(None, None)
    except TypeError:
        return False
    return True


def is_pyg(model: nn.Module) -> bool:
    """Whether a model is called as model(x, edge_index, …), or model(data) as PyG's examples do."""
    names = list(inspect.signature(model.forward).parameters)
    return "edge_index" in names or names == ["data"]


def refuse_types_apart(model: nn.Module) -> None:
    """Refuse a model that wants rows and edges by types of vertices, as PyG's `to_hetero` and `HeteroConv` do."""
    names = list(inspect.signature(model.forward).parameters)
    traced = getattr(model, "code", None)
    if any(name.endswith("_dict") for name in names) or (isinstance(traced, str) and "get_dict" in traced):
        raise BadInput(
            f"{type(model).__name__}: forward takes a dictionary by types of vertices (to_hetero, HeteroConv, HGTConv …): "
            "write it with x, edge_index and edge_type, such as RGCNConv after siafu.nn.TypedLinear"
        )


def call_with(model: nn.Module, graph: Graph, x: Tensor, run: RunModel) -> Any:
    """Result of `run` for the arguments that `model` is called with; x: rows for the graph's features."""
    refuse_types_apart(model)
    if is_pyg(model):
        from siafu.nn.pyg.bridge import call_pyg

        return call_pyg(model, graph, x, run)
    return run((graph, x) if takes_features(model) else (graph,), {})


def call_model(model: nn.Module, graph: Graph, x: Tensor | None = None) -> Tensor:
    """What `model` gives for `graph`; x: other features than the graph's own."""
    if not is_pyg(model) and not takes_features(model):
        given = graph if x is None else graph.replace(x=x.numpy())
        alone: Tensor = model(given)
        return alone
    rows = features(graph) if x is None else x
    rows = rows.to(next((each.dtype for each in model.parameters()), rows.dtype))
    out: Tensor = call_with(model, graph, rows, lambda args, kwargs: model(*args, **kwargs))
    return out

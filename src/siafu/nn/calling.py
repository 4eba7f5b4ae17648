"""Calling a model: with the graph alone, with rows of features as well, or as PyG's models are called."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.tensors import features, features_if_any

RunModel = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def takes_features(model: nn.Module) -> bool:
    """Whether a model is called as model(graph, x); else it gets them from `siafu.nn.features`."""
    try:
        inspect.signature(model.forward).bind(None, None)
    except TypeError:
        return False
    return True


def forward_parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    """Parameters of a model's `forward`, by name; PyG's `Sequential` keeps them in a signature of its own."""
    named = getattr(getattr(model, "signature", None), "param_dict", None)
    if isinstance(named, dict):
        return {
            name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=each.default)
            for name, each in named.items()
        }
    return dict(inspect.signature(model.forward).parameters)


def is_pyg(model: nn.Module) -> bool:
    """Whether a model is called as model(x, edge_index, …), or model(data) as PyG's examples do, whatever its names for them."""
    names = list(forward_parameters(model))
    if "edge_index" in names or names == ["data"]:
        return True
    return names[:1] != ["graph"] and _is_made_of_pyg(model)


def _is_made_of_pyg(model: nn.Module) -> bool:
    homes = {kind.__module__.partition(".")[0] for each in model.modules() for kind in type(each).__mro__}
    return "torch_geometric" in homes and "siafu" not in homes


def refuse_types_apart(model: nn.Module) -> None:
    """Refuse a model that wants rows and edges by types of vertices, as PyG's `to_hetero` and `HeteroConv` do."""
    if type(model).__name__ == "OptimizedModule":
        raise BadInput("the model went through torch.compile: give the model itself")
    names = list(inspect.signature(model.forward).parameters)
    traced = getattr(model, "code", None)
    if any(name.endswith("_dict") for name in names) or (isinstance(traced, str) and "get_dict" in traced):
        raise BadInput(
            f"{type(model).__name__}: forward takes a dictionary by types of vertices (to_hetero, HeteroConv, HGTConv …): "
            "write it with x, edge_index and edge_type, such as RGCNConv after siafu.nn.TypedLinear"
        )


def call_with(model: nn.Module, graph: Graph, x: Any, run: RunModel) -> Any:
    """Result of `run` for the arguments that `model` is called with; x: rows for the graph's features."""
    refuse_types_apart(model)
    if is_pyg(model):
        from siafu.nn.pyg.bridge import call_pyg

        return call_pyg(model, graph, x, run)
    return run((graph, x) if takes_features(model) else (graph,), {})


def in_columns(out: Any) -> Any:
    """A model's output in columns: a number for each vertex, as after `squeeze(-1)`, is one column."""
    return out.unsqueeze(1) if isinstance(out, Tensor) and out.ndim == 1 else out


def call_model(model: nn.Module, graph: Graph, x: Tensor | None = None) -> Tensor:
    """What `model` gives for `graph`; x: other features than the graph's own."""
    if not is_pyg(model) and not takes_features(model):
        given = graph if x is None else graph.replace(x=x.numpy())
        alone: Tensor = model(given)
        return alone
    own = features_if_any if is_pyg(model) else features
    rows = own(graph) if x is None else x
    rows = rows.to(next((each.dtype for each in model.parameters()), rows.dtype))
    out: Tensor = call_with(model, graph, rows, lambda args, kwargs: model(*args, **kwargs))
    return out

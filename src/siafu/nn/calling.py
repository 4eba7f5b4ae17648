"""Calling a model: some take the graph alone and ask it for features, some take rows of features as well."""

import inspect

import torch
from torch import Tensor, nn

from siafu.graph import Graph
from siafu.nn.tensors import features


def takes_features(model: nn.Module) -> bool:
    """Whether a model is called as model(graph, x); else it gets them from `siafu.nn.features`."""
    try:
        inspect.signature(model.forward).bind(None, None)
    except TypeError:
        return False
    return True


def call_model(model: nn.Module, graph: Graph, x: Tensor | None = None) -> Tensor:
    """What `model` gives for `graph`; x: other features than the graph's own."""
    if not takes_features(model):
        given = graph if x is None else graph.replace(x=x.numpy())
        alone: Tensor = model(given)
        return alone
    kind = next((each.dtype for each in model.parameters()), torch.float32)
    out: Tensor = model(graph, (features(graph) if x is None else x).to(kind))
    return out

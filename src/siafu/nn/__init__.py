"""Layers and models: plain PyTorch modules over whole graphs. `model(graph)` just works."""

from typing import Any

from siafu.base.errors import BadInput
from siafu.nn.gathers.gather import Gather, GcnSum, Max, Mean, Softmax, Sum
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.nn.gathers.relation_sum import RelationSum
from siafu.nn.layers.gat import GAT, GATConv
from siafu.nn.layers.gatv2 import GATv2, GATv2Conv
from siafu.nn.layers.gcn import GCN, GCNConv
from siafu.nn.layers.gin import GIN, MLP, GINConv
from siafu.nn.layers.layer import Layer
from siafu.nn.layers.light_gcn import LearntRows, LightGCN
from siafu.nn.layers.rgcn import RGCNConv
from siafu.nn.layers.sage import GraphSAGE, SAGEConv
from siafu.nn.layers.transformer import Transformer, TransformerConv
from siafu.nn.layers.typed_linear import TypedLinear
from siafu.nn.model import GNN
from siafu.nn.precision import set_precision
from siafu.nn.pyg.model import PygModel, from_pyg
from siafu.nn.tensors import Precision, features

MODELS: dict[str, type[GNN]] = {
    "gcn": GCN,
    "gat": GAT,
    "gatv2": GATv2,
    "transformer": Transformer,
    "sage": GraphSAGE,
    "gin": GIN,
}


def build(name: str, config: dict[str, Any]) -> GNN:
    """The model of that name with that `config()`."""
    if name not in MODELS:
        raise BadInput(f"no model {name!r}: choose one of {', '.join(MODELS)}")
    return MODELS[name](**config)


__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GNN",
    "MLP",
    "MODELS",
    "GATConv",
    "GATv2",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "Gather",
    "GcnSum",
    "GraphSAGE",
    "Layer",
    "LearntRows",
    "LightGCN",
    "Max",
    "Mean",
    "PairSoftmax",
    "Precision",
    "PygModel",
    "RGCNConv",
    "RelationSum",
    "SAGEConv",
    "Softmax",
    "Sum",
    "Transformer",
    "TransformerConv",
    "TypedLinear",
    "build",
    "features",
    "from_pyg",
    "set_precision",
]


def __dir__() -> list[str]:
    return __all__

"""The networks that are measured."""

import torch

from siafu import nn
from siafu.base.errors import BadInput
from siafu.graph import Graph

_GAT = {"heads": 8, "out_heads": 1, "act": "elu"}
"""GAT as its authors had it: eight heads that share the width, one at the end."""


def network(
    graph: Graph,
    model: str,
    hidden: int,
    layers: int = 2,
    *,
    dropout: float = 0.0,
    precision: str = "fp32",
) -> nn.GNN:
    """A model for a graph, with the same weights every time."""
    if graph.y is None or graph.train is None or graph.multi_label or graph.has_quantities:
        raise BadInput(
            "what is measured is a training on classes: give a graph with a split, or reddit-small"
        )
    torch.manual_seed(0)
    return nn.build(
        model,
        {
            "in_channels": graph.num_features,
            "hidden_channels": hidden,
            "num_layers": layers,
            "out_channels": graph.num_classes,
            "dropout": dropout,
            "precision": precision,
            **(_GAT if model == "gat" else {}),
        },
    )

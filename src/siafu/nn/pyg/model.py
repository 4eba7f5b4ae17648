"""PygModel: a PyG model that is called as Siafu's are."""

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.calling import call_with, is_pyg
from siafu.nn.tensors import features_if_any


class PygModel(nn.Module):
    """`model(graph)` gives what the PyG model gives for the graph's features, differentiably; `model(graph, x)` for others.

    model: the PyG model itself; its parameters are this one's
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, graph: Graph, x: Tensor | None = None) -> Tensor:
        if x is None:
            kind = next((each.dtype for each in self.parameters()), torch.float32)
            x = features_if_any(graph).to(kind)
        out: Tensor = call_with(self.model, graph, x, lambda args, kwargs: self.model(*args, **kwargs))
        return out


def from_pyg(model: nn.Module) -> PygModel:
    """A module whose `forward(x, edge_index, …)` is written with `torch_geometric.nn`, as one that takes a graph.

    Its own `forward` runs, with a stand-in for `edge_index`; each aggregation becomes one of Siafu's gathers. `siafu.train`
    takes such a module as it is. What cannot be taken apart is refused by name: docs/from-pyg.md has the list.
    """
    if not isinstance(model, nn.Module) or not is_pyg(model):
        raise BadInput(
            f"from_pyg takes a module with forward(x, edge_index, …) or forward(data), not {type(model).__name__}"
        )
    return PygModel(model)

"""PyG's norms that number the graphs of a batch, and recurrent layers, while stand-ins are recorded: there is one graph, and it is whole."""

import types
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.recurrent import gru, gru_cell, lstm


def one_graph(model: nn.Module) -> None:
    """Let these norms take the statistics of all vertices at once, and recurrent layers be written out; what they were is restored with all else of the model."""
    from torch_geometric.nn import norm

    forms: dict[type, Callable[..., Any]] = {
        norm.GraphNorm: _graph_norm,
        norm.GraphSizeNorm: _graph_size,
        nn.LSTM: lstm,
        nn.GRU: gru,
        nn.GRUCell: gru_cell,
    }
    for each in model.modules():
        form = forms.get(type(each))
        if form is not None:
            each.__dict__["forward"] = types.MethodType(form, each)


def _graph_norm(norm: Any, x: Tensor, batch: Any = None, batch_size: Any = None) -> Tensor:
    _refuse_batch(batch)
    out = x - x.mean(0, keepdim=True) * norm.mean_scale
    spread = (out.pow(2).mean(0, keepdim=True) + norm.eps).sqrt()
    found: Tensor = norm.weight * out / spread + norm.bias
    return found


def _graph_size(norm: Any, x: Tensor, batch: Any = None, batch_size: Any = None) -> Tensor:
    _refuse_batch(batch)
    found: Tensor = x * float(session().graph.num_vertices) ** -0.5
    return found


def _refuse_batch(batch: Any) -> None:
    if batch is not None:
        raise refusal("a batch of several graphs", "leave out batch: a training is of one graph")

"""Batch norms of values of edges, such as those of the perceptron in an EdgeConv: statistics over all edges of the layer."""

from typing import Any

import torch
from torch import Tensor

from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue
from siafu.nn.recording import recorder


def batch_norm(
    input: EdgeValue,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`torch.nn.functional.batch_norm` of [edges, channels]; a mean over edges is a sum over vertices of sums over in-edges."""
    if input.ndim != 2:
        raise refusal(
            f"a batch norm of values of edges with {input.ndim} dimensions", "give it [edges, channels]"
        )
    if training:
        mean, variance = _of_all(input, running_mean, running_var, momentum)
    else:
        mean, variance = _of_epochs(running_mean, running_var)
    scale = torch.rsqrt(variance + eps)
    found = (input - mean) * (scale if weight is None else scale * weight)
    return found if bias is None else found + bias


def _of_epochs(running_mean: Tensor | None, running_var: Tensor | None) -> tuple[Tensor, Tensor]:
    assert running_mean is not None and running_var is not None, "without buffers a norm takes the edges' own"
    who = recorder()
    if who is not None:
        who.moves(running_mean)
        who.moves(running_var)
    return running_mean, running_var


def _of_all(
    values: EdgeValue, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    from siafu.nn.pyg.aggregate import aggregate

    current = session().edges
    token = EdgeToken() if current is None else current
    graph, end = session().graph, token.row(token.sides[1])
    edges = (
        graph.num_edges - (graph.num_self_loops if token.removed else 0) + token.added * graph.num_vertices
    )
    if edges < 2:
        raise refusal(f"a batch norm of the values of {edges} edges", "give a graph with more")
    share, unbiased = graph.num_vertices / edges, edges / (edges - 1)

    def mean_of(each: EdgeValue, buffer: Tensor | None, times: float) -> Tensor:
        return _followed(aggregate(each.node, "sum", end) * (share * times), buffer, momentum)

    mean = mean_of(values, running_mean, 1.0)
    apart: Any = values - mean
    variance = mean_of(apart * apart, running_var, unbiased) / unbiased
    return mean, variance


def _followed(rows: Tensor, buffer: Tensor | None, momentum: float) -> Tensor:
    """The mean of rows over all vertices, which a running statistic follows."""
    who = recorder()
    if who is not None:
        return who.running_mean(rows, buffer, momentum)
    found = rows.mean(0)
    if buffer is not None:
        with torch.no_grad():
            buffer.lerp_(found.detach().to(buffer.dtype), momentum)
    return found

"""Graph attention."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.gathers.gather import Softmax
from siafu.nn.layers.layer import Layer
from siafu.nn.model import GNN
from siafu.nn.tensors import Precision


class GATConv(Layer):
    r"""Veličković et al., "Graph Attention Networks", ICLR 2018.

        x'_i = b + Σ_j a_ij W x_j        j over i's in-edges and i itself
        a_ij = softmax_j leaky_relu(⟨att_src, W x_j⟩ + ⟨att_dst, W x_i⟩), for each head

    out_channels:   of one head
    heads, concat:  heads stand side by side (heads · out_channels wide), or their mean is taken
    negative_slope: of the leaky ReLU
    dropout:        share of the a_ij put to zero in training
    add_self_loops: each vertex has exactly one self-loop; else the stored edges as they are

    Shapes: [V, in_channels] → [V, heads · out_channels] or [V, out_channels]. Parameters are named as in PyG's GATConv.
    """

    gather: Softmax

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        *,
        bias: bool = True,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__()
        self.heads, self.out_channels, self.concat, self.dropout = heads, out_channels, concat, dropout
        self.gather = Softmax(precision, heads, negative_slope, add_self_loops)
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.lin.weight, self.att_src, self.att_dst):
            # Glorot over the last two dimensions, the attention vectors included.
            bound = (6.0 / (weight.shape[-2] + weight.shape[-1])) ** 0.5
            nn.init.uniform_(weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def transform(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sent = self.lin(x)
        by_head = sent.view(-1, self.heads, self.out_channels)
        return sent, (by_head * self.att_src).sum(-1), (by_head * self.att_dst).sum(-1)

    def propagate(self, graph: Graph, sent: Any) -> torch.Tensor:
        return self.gather(graph, *sent, dropout=self.dropout if self.training else 0.0)

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if not self.concat:
            gathered = gathered.unflatten(1, (self.heads, self.out_channels)).mean(1)
        return gathered if self.bias is None else gathered + self.bias


class AttentionModel(GNN):
    """Layers with heads: `hidden_channels` is the width of all heads together.

    heads:     of every layer but the last, side by side
    out_heads: of the last layer, of which the mean is taken; as many as `heads` if not given
    """

    conv: ClassVar[Callable[..., Layer]]

    def make_layer(self, in_channels: int, out_channels: int, is_last: bool, **options: Any) -> Layer:
        heads = options.pop("heads", 1)
        out_heads = options.pop("out_heads", None) or heads
        if is_last and self.out_channels is not None:
            return type(self).conv(
                in_channels,
                out_channels,
                out_heads,
                concat=False,
                dropout=self.dropout,
                precision=self.precision,
                **options,
            )
        if out_channels % heads:
            raise BadInput(
                f"hidden_channels is {out_channels} and heads {heads}: the width of all heads must divide evenly"
            )
        return type(self).conv(
            in_channels,
            out_channels // heads,
            heads,
            dropout=self.dropout,
            precision=self.precision,
            **options,
        )


class GAT(AttentionModel):
    """Layers of `GATConv`, as PyG's `GAT`; heads and out_heads as in `AttentionModel`."""

    conv = GATConv

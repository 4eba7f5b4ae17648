"""Graph attention whose logits look at both ends of an edge together."""

from typing import Any

import torch
from torch import nn

from siafu.graph import Graph
from siafu.nn.gathers.gather import Gather
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.nn.layers.gat import AttentionModel
from siafu.nn.layers.layer import Layer
from siafu.nn.tensors import Precision


class GATv2Conv(Layer):
    r"""Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022.

        x'_i = b + Σ_j a_ij W_l x_j        j over i's in-edges and i itself
        a_ij = softmax_j ⟨att, leaky_relu(W_l x_j + W_r x_i)⟩, for each head

    out_channels:   of one head
    heads, concat:  heads stand side by side (heads · out_channels wide), or their mean is taken
    negative_slope: of the leaky ReLU
    dropout:        share of the a_ij put to zero in training
    add_self_loops: each vertex has exactly one self-loop; else the stored edges as they are

    Shapes: [V, in_channels] → [V, heads · out_channels] or [V, out_channels]. Parameters are named as in PyG's GATv2Conv.
    Features of edges: PyG's own layer, with `edge_dim`.
    """

    gather: Gather

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
        self.gather = PairSoftmax(precision, "additive", heads, negative_slope, add_self_loops)
        self.lin_l = nn.Linear(in_channels, heads * out_channels, bias=bias)
        self.lin_r = nn.Linear(in_channels, heads * out_channels, bias=bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.lin_l.weight, self.lin_r.weight, self.att):
            # Glorot over the last two dimensions, the attention vector included.
            bound = (6.0 / (weight.shape[-2] + weight.shape[-1])) ** 0.5
            nn.init.uniform_(weight, -bound, bound)
        for bias in (self.lin_l.bias, self.lin_r.bias, self.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def transform(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.lin_l(x), self.lin_r(x)

    def propagate(self, graph: Graph, sent: Any) -> torch.Tensor:
        dropout = self.dropout if self.training else 0.0
        return self.gather(graph, *sent, dropout=dropout, parameters=(self.att,))

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if not self.concat:
            gathered = gathered.unflatten(1, (self.heads, self.out_channels)).mean(1)
        return gathered if self.bias is None else gathered + self.bias


class GATv2(AttentionModel):
    """Layers of `GATv2Conv`, as PyG's `GAT` with `v2=True`; heads and out_heads as in `AttentionModel`."""

    conv = GATv2Conv

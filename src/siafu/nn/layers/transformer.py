"""Graph attention as in transformers: queries, keys and values."""

from typing import Any

import torch
from torch import nn

from siafu.graph import Graph
from siafu.nn.gathers.gather import Gather
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.nn.layers.gat import AttentionModel
from siafu.nn.layers.layer import Layer
from siafu.nn.tensors import Precision


class TransformerConv(Layer):
    r"""Shi et al., "Masked Label Prediction: Unified Message Passing Model for Semi-Supervised Classification", IJCAI 2021.

        x'_i = W_skip x_i + Σ_j a_ij W_value x_j        j over i's in-edges
        a_ij = softmax_j ⟨W_query x_i, W_key x_j⟩ / √C, for each head

    out_channels:  C, of one head
    heads, concat: heads stand side by side (heads · out_channels wide), or their mean is taken
    dropout:       share of the a_ij put to zero in training
    root_weight:   whether there is a W_skip x_i

    Shapes: [V, in_channels] → [V, heads · out_channels] or [V, out_channels]. Parameters are named as in PyG's TransformerConv.
    Features of edges and gates (`beta`): PyG's own layer.
    """

    gather: Gather

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        root_weight: bool = True,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__()
        self.heads, self.out_channels, self.concat, self.dropout = heads, out_channels, concat, dropout
        self.gather = PairSoftmax(precision, "product", heads, self_loops=False)
        self.lin_key, self.lin_query, self.lin_value = (
            nn.Linear(in_channels, heads * out_channels, bias=True) for _ in range(3)
        )
        width = heads * out_channels if concat else out_channels
        self.lin_skip = nn.Linear(in_channels, width, bias=bias) if root_weight else None

    def reset_parameters(self) -> None:
        for linear in (self.lin_key, self.lin_query, self.lin_value, self.lin_skip):
            if linear is not None:
                linear.reset_parameters()

    def transform(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.lin_key(x), self.lin_value(x), self.lin_query(x) * self.out_channels**-0.5

    def propagate(self, graph: Graph, sent: Any) -> torch.Tensor:
        return self.gather(graph, *sent, dropout=self.dropout if self.training else 0.0)

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if not self.concat:
            gathered = gathered.unflatten(1, (self.heads, self.out_channels)).mean(1)
        return gathered if self.lin_skip is None else gathered + self.lin_skip(x)


class Transformer(AttentionModel):
    """Layers of `TransformerConv`; heads and out_heads as in `AttentionModel`."""

    conv = TransformerConv

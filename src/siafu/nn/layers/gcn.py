"""Graph convolution."""

from typing import Any

import torch
from torch import nn

from siafu.nn.gathers.gather import GcnSum, Sum
from siafu.nn.layers.layer import Layer
from siafu.nn.model import GNN
from siafu.nn.tensors import Precision


class GCNConv(Layer):
    r"""Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017.

        x'_i = b + W Σ_j  w_ij / sqrt(d_i d_j)  x_j        j over i's in-edges and i itself

    in_channels, out_channels: widths of the rows that come in and go out
    add_self_loops: each vertex has one self-loop; a stored one takes its place
    normalize:      divide by the square roots of both degrees; else a plain weighted sum

    Shapes: [V, in_channels] → [V, out_channels]. Parameters are named as in PyG's GCNConv.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        add_self_loops: bool = True,
        normalize: bool = True,
        bias: bool = True,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.gather = GcnSum(precision, self_loops=add_self_loops) if normalize else Sum(precision)
        # The map commutes with the sum: it goes where it makes the gathered rows narrower.
        self.linear_first = out_channels <= in_channels
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def transform(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) if self.linear_first else x

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out = gathered if self.linear_first else self.lin(gathered)
        return out if self.bias is None else out + self.bias


class GCN(GNN):
    """Layers of `GCNConv`, as PyG's `GCN`."""

    def make_layer(self, in_channels: int, out_channels: int, is_last: bool, **options: Any) -> Layer:
        return GCNConv(in_channels, out_channels, precision=self.precision, **options)

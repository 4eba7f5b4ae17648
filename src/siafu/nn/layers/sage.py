"""GraphSAGE."""

from typing import Any, Literal

import torch
from torch import nn

from siafu.base.errors import BadInput
from siafu.nn.gathers.gather import Max, Mean, Sum
from siafu.nn.layers.layer import Layer
from siafu.nn.model import GNN
from siafu.nn.tensors import Precision


class SAGEConv(Layer):
    r"""Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017.

        x'_i = W_l · aggr_j x_j + b + W_r · x_i        j over i's in-edges

    aggr:        mean, max or sum over the in-edges; edge weights do not count
    root_weight: whether there is W_r

    Shapes: [V, in_channels] → [V, out_channels]. Parameters are named as in PyG's SAGEConv.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: Literal["mean", "max", "sum"] = "mean",
        *,
        root_weight: bool = True,
        bias: bool = True,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__()
        gathers = {"mean": Mean(precision), "max": Max(precision), "sum": Sum(precision, weighted=False)}
        if aggr not in gathers:
            raise BadInput(f"aggr is {aggr!r}: choose mean, max or sum")
        self.gather = gathers[aggr]
        self.lin_l = nn.Linear(in_channels, out_channels, bias=bias)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False) if root_weight else None
        # The map commutes with a sum, not with a maximum: it goes where it makes the gathered rows narrower.
        self.linear_first = None if aggr == "max" else out_channels < in_channels

    def reset_parameters(self) -> None:
        self.lin_l.reset_parameters()
        if self.lin_r is not None:
            self.lin_r.reset_parameters()

    def transform(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.lin_l.weight) if self.linear_first else x

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if not self.linear_first:
            gathered = self.lin_l(gathered)
        elif self.lin_l.bias is not None:
            gathered = gathered + self.lin_l.bias
        return gathered if self.lin_r is None else gathered + self.lin_r(x)


class GraphSAGE(GNN):
    """Layers of `SAGEConv`, as PyG's `GraphSAGE`."""

    def make_layer(self, in_channels: int, out_channels: int, is_last: bool, **options: Any) -> Layer:
        return SAGEConv(in_channels, out_channels, precision=self.precision, **options)

"""Relational graph convolution."""

from typing import Any

import torch
from torch import nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.gathers.gather import Gather
from siafu.nn.gathers.relation_sum import Matrices, RelationSum
from siafu.nn.layers.layer import Layer
from siafu.nn.tensors import Precision


class RGCNConv(Layer):
    r"""Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018.

        x'_i = b + root x_i + Σ_r mean_j x_j W_r        j over i's in-edges of type r

    num_relations: how many types of edges there are
    num_bases:     W_r = Σ_b comp_rb weight_b
    num_blocks:    W_r is a diagonal of so many blocks
    aggr:          "mean" or "sum" over the edges of one type
    root_weight, bias: whether there is a root, and a b

    Shapes: [V, in_channels] → [V, out_channels]. Parameters are named as in PyG's RGCNConv.
    """

    gather: Gather

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        aggr: str = "mean",
        root_weight: bool = True,
        bias: bool = True,
        *,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__()
        if num_bases is not None and num_blocks is not None:
            raise BadInput("num_bases and num_blocks are two ways to make matrices: give one of them")
        if aggr not in ("mean", "sum", "add"):
            raise BadInput(f"aggr is {aggr!r}: choose mean or sum")
        if num_blocks is not None and (in_channels % num_blocks or out_channels % num_blocks):
            raise BadInput(
                f"{num_blocks} blocks do not divide {in_channels} and {out_channels} channels evenly"
            )
        form: Matrices = "bases" if num_bases is not None else "blocks" if num_blocks is not None else "full"
        self.gather = RelationSum(precision, num_relations, out_channels, aggr == "mean", form)
        shape: tuple[int, ...] = (num_bases or num_relations, in_channels, out_channels)
        if num_blocks is not None:
            shape = (num_relations, num_blocks, in_channels // num_blocks, out_channels // num_blocks)
        self.weight = nn.Parameter(torch.empty(shape))
        self.comp = None if num_bases is None else nn.Parameter(torch.empty(num_relations, num_bases))
        self.root = nn.Parameter(torch.empty(in_channels, out_channels)) if root_weight else None
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.weight, self.comp, self.root):
            if weight is not None:
                bound = (6.0 / (weight.shape[-2] + weight.shape[-1])) ** 0.5
                nn.init.uniform_(weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def propagate(self, graph: Graph, sent: Any) -> torch.Tensor:
        parameters = (self.weight,) if self.comp is None else (self.weight, self.comp)
        return self.gather(graph, sent, parameters=parameters)

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if self.root is not None:
            gathered = gathered + x @ self.root
        return gathered if self.bias is None else gathered + self.bias

"""TypedLinear: a linear map for each type of vertices."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from siafu.graph.several_types import VertexTypes


class TypedLinear(nn.Module):
    """Rows of all types of vertices in one width: x'_i = W_t x_i + b_t, t the type of i.

    types:        of the graph that `Graph.from_pyg` made of a `HeteroData`, whose features this takes
    out_channels: width of the result

    weight [out_channels, types.width] has the maps side by side, and the biases last, as the features have their columns. A type without
    features has its bias alone: one learnt row for all of its vertices.
    """

    def __init__(self, types: VertexTypes, out_channels: int) -> None:
        super().__init__()
        self.types = types
        self.weight = nn.Parameter(torch.empty(out_channels, types.width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, width in zip(self.types.names, self.types.widths, strict=True):
            bound = max(1, width) ** -0.5  # as torch.nn.Linear begins
            self.weight[:, self.types.columns(name)].uniform_(-bound, bound)
            self.weight[:, self.types.column_of_ones(name)].uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """[V, types.width] → [V, out_channels]."""
        return F.linear(x, self.weight)

"""Models whose rows are learnt themselves, for graphs without features: LightGCN, and any model on learnt rows."""

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.gathers.gather import GcnSum
from siafu.nn.tensors import Precision


class LearntRows(nn.Module):
    """Learnt rows in the place of features.

    model: what is called as model(graph, rows); None: the rows are the result
    std:   of the normal distribution that the rows begin with
    """

    def __init__(
        self, num_vertices: int, channels: int, model: nn.Module | None = None, std: float = 0.1
    ) -> None:
        super().__init__()
        if num_vertices < 1 or channels < 1:
            raise BadInput(f"{num_vertices} rows of {channels} numbers: give at least one of each")
        self.rows = nn.Parameter(torch.empty(num_vertices, channels))
        self.model, self.std, self.num_vertices = model, std, num_vertices
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.rows, std=self.std)

    def forward(self, graph: Graph) -> Tensor:
        """[V, channels], or what the model makes of these."""
        if graph.num_vertices != self.num_vertices:
            raise BadInput(
                f"the model has {self.num_vertices} learnt rows, the graph {graph.num_vertices} vertices: they must be the same"
            )
        found: Tensor = self.rows if self.model is None else self.model(graph, self.rows)
        return found


class LightGCN(LearntRows):
    r"""He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR 2020.

        z = 1/(L+1) · Σ_l Âˡ e        Â_ij = 1/√(d_i d_j); e: learnt rows

    num_layers: L
    """

    def __init__(
        self,
        num_vertices: int,
        channels: int = 64,
        num_layers: int = 3,
        std: float = 0.1,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__(num_vertices, channels, std=std)
        if num_layers < 0:
            raise BadInput(f"num_layers is {num_layers}: give a number from 0 up")
        self.num_layers = num_layers
        self.gather = GcnSum(precision, weighted=False, self_loops=False)

    def forward(self, graph: Graph) -> Tensor:
        """[V, channels]."""
        rows = super().forward(graph)
        found = rows
        for _ in range(self.num_layers):  # Horner's rule: e + Â(e + Â(e + …))
            found = rows + self.gather(graph, found)
        return found / (self.num_layers + 1)

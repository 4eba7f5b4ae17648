"""Factors: numbers of vertices that the edges alone say, as gathers of ones. They are folded, and so computed once."""

from dataclasses import dataclass

import numpy as np
import torch

from siafu.graph import Graph
from siafu.nn.gather import GcnSum, Scaling, Sum, stored_loops
from siafu.nn.tensors import check_rows


@dataclass(frozen=True)
class VertexFactor(Sum):
    """out_i = f_i x_i, f a number that the graph's edges say of vertex i."""

    def run(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        check_rows("x", x, graph)
        factor = self.scaling(graph, x.dtype).post
        assert factor is not None
        return x * torch.from_numpy(factor).to(x.dtype)[:, None]


@dataclass(frozen=True)
class StoredLoops(VertexFactor):
    """f_i: number of i's stored self-loops, or the sum of their weights."""

    def _scaling(self, graph: Graph) -> Scaling:
        vertex, position = stored_loops(graph)
        weights = graph.edge_weight[position] if self.weighted and graph.edge_weight is not None else None
        return Scaling(post=np.bincount(vertex, weights, graph.num_vertices).astype(np.float64))


@dataclass(frozen=True)
class OutWeight(VertexFactor):
    """f_i: number of i's out-edges, or the sum of their weights."""

    def _scaling(self, graph: Graph) -> Scaling:
        weights = graph.edge_weight if self.weighted else None
        return Scaling(post=np.bincount(graph.indices, weights, graph.num_vertices).astype(np.float64))


@dataclass(frozen=True)
class GcnFactor(VertexFactor):
    """f_i: i's degree to the power of -½, as `of` scales with it."""

    of: GcnSum = GcnSum()

    def _scaling(self, graph: Graph) -> Scaling:
        return Scaling(post=self.of._scaling(graph).pre)


@dataclass(frozen=True)
class GcnLoop(VertexFactor):
    """f_i: weight of the one self-loop that i has under `of`."""

    of: GcnSum = GcnSum()

    def _scaling(self, graph: Graph) -> Scaling:
        return Scaling(post=self.of._scaling(graph).self_weight)

"""Factors: numbers of vertices that the edges alone say, as gathers of ones. They are folded, and so computed once."""

from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.graph import Graph
from siafu.graph.bf16 import widened
from siafu.nn.gathers.gather import GcnSum, Scaling, Sum, stored_loops
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

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        vertex, position = stored_loops(graph)
        weights = graph.edge_weight[position] if self.weighted and graph.edge_weight is not None else None
        return Scaling(post=np.bincount(vertex, weights, graph.num_vertices).astype(np.float64))


@dataclass(frozen=True)
class OutWeight(VertexFactor):
    """f_i: number of i's out-edges, or the sum of their weights."""

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        weights = graph.edge_weight if self.weighted else None
        return Scaling(post=np.bincount(graph.indices, weights, graph.num_vertices).astype(np.float64))


@dataclass(frozen=True)
class GcnFactor(VertexFactor):
    """f_i: i's degree to the power of -½, as `of` scales with it."""

    of: GcnSum = GcnSum()

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        return Scaling(post=self.of._scaling(graph, kind).pre)


@dataclass(frozen=True)
class GcnLoop(VertexFactor):
    """f_i: weight of the one self-loop that i has under `of`."""

    of: GcnSum = GcnSum()

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        return Scaling(post=self.of._scaling(graph, kind).self_weight)


@dataclass(frozen=True)
class EdgeFeatures(VertexFactor):
    """out_i = f_i · x_i, f_i [D] the sum or mean of the features of i's in-edges.

    removed: without those of stored self-loops
    """

    how: Literal["sum", "mean"] = "sum"
    removed: bool = False

    def run(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(self._of(graph)).to(x.dtype)

    def lend(self, graph: Graph, part: Graph, vertices: NDArray[np.int64], dtype: torch.dtype) -> None:
        _reduced.setdefault(part, {})[self] = self._of(graph)[vertices]

    def _of(self, graph: Graph) -> NDArray[np.float64]:
        known = _reduced.setdefault(graph, {})
        if self not in known:
            known[self] = _reduced_features(graph, self.how, removed=self.removed)
        return known[self]


_reduced: WeakKeyDictionary[Graph, dict[EdgeFeatures, NDArray[Any]]] = WeakKeyDictionary()
_EDGES_AT_ONCE = 1 << 20


def _reduced_features(graph: Graph, how: str, *, removed: bool) -> NDArray[np.float64]:
    assert graph.edge_attr is not None
    total = np.zeros((graph.num_vertices, graph.num_edge_features))
    counts = np.zeros(graph.num_vertices)
    first = 0
    while first < graph.num_vertices:
        limit = graph.indptr[first] + _EDGES_AT_ONCE
        last = max(first + 1, int(np.searchsorted(graph.indptr, limit, side="right")) - 1)
        lo, hi = graph.indptr[first], graph.indptr[last]
        target = np.repeat(np.arange(first, last), np.diff(graph.indptr[first : last + 1]))
        rows = widened(graph.edge_attr[lo:hi])
        if removed:
            stays = target != graph.indices[lo:hi]
            target, rows = target[stays], rows[stays]
        for column in range(rows.shape[1]):
            total[first:last, column] = np.bincount(target - first, rows[:, column], last - first)
        counts[first:last] = np.bincount(target - first, minlength=last - first)
        first = last
    return total / np.maximum(counts, 1)[:, None] if how == "mean" else total

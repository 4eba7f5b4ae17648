"""RelationSum: sums over edges of several types, each with a matrix of its own."""

from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd.function import once_differentiable

from siafu.base.errors import BadInput
from siafu.base.threads import run_all
from siafu.graph import Graph
from siafu.kernels import (
    Table,
    TypedEdges,
    empty_table,
    equal_chunks,
    pack,
    relation_range,
    relation_weights_range,
    type_shares,
    typed_edges,
    zero_table,
)
from siafu.nn.gathers.functions import call
from siafu.nn.gathers.gather import Gather, SampledPart
from siafu.nn.tensors import as_rows, as_tensor, check_rows, storage

Matrices = Literal["full", "bases", "blocks"]
_CHUNKS = 8  # as many sums of the matrices' gradients, whatever the number of threads: so bits are the same


@dataclass(frozen=True)
class RelationSum(Gather):
    """out_i = Σ_r s_ir Σ_j x_j W_r, j over i's in-edges of type r; s_ir one over their number, or 1.

    Schlichtkrull et al. 2018 (R-GCN). One product with a matrix for each type that a vertex has in-edges of; nothing
    is kept for an edge.

    relations:    number of types, of which the graph may have fewer
    out_channels: columns of what comes out
    mean:         s_ir is one over the number of edges
    matrices:     full: one parameter [relations, in, out]; blocks: one parameter [relations, blocks, in / blocks,
                  out / blocks], of diagonals; bases: two, [bases, in, out] and the shares of each [relations, bases]
    """

    relations: int = 1
    out_channels: int = 1
    mean: bool = True
    matrices: Matrices = "full"

    @property
    def title(self) -> str:
        return f"RelationSum ({self.matrices})"

    def width(self, sent: int) -> int:
        return self.out_channels

    def run(self, graph: Graph, x: torch.Tensor, *, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
        check_rows("x", x, graph)
        self.check(graph)
        with torch.enable_grad():
            made = composed(self.matrices, parameters)
        return call(_RelationFunction, graph, self, x, made)

    def estimate(self, sampled: SampledPart) -> None:
        """The mean of a type's drawn edges as it is; a sum is divided by the share that was drawn."""
        if not self.mean:
            counts = np.diff(sampled.part.indptr)
            _estimates[sampled.part] = np.repeat(1 / sampled.shares, counts)

    def scales(self, graph: Graph, kind: np.dtype[Any]) -> NDArray[Any] | None:
        """[E] factors of the edges; None: 1."""
        if self.mean:
            return shares_of(graph, kind)
        found = _estimates.get(graph)
        return None if found is None else found.astype(kind)

    def check(self, graph: Graph) -> None:
        """Refuse a graph whose edges have no types, or more than there are matrices."""
        if graph.edge_type is None:
            raise BadInput(
                f"graph {graph.name!r} has no edge_type, by which RelationSum goes: give data.edge_type"
            )
        if graph.num_relations > self.relations:
            raise BadInput(
                f"edge_type goes up to {graph.num_relations - 1}, but the model has {self.relations} relations: "
                f"build it with num_relations={graph.num_relations}"
            )


def composed(matrices: Matrices, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """[relations, in, out] of what is learnt, differentiable."""
    if matrices == "full":
        return parameters[0]
    if matrices == "blocks":
        return torch.stack([torch.block_diag(*each) for each in parameters[0]])
    bases, shares = parameters
    flat: torch.Tensor = shares @ bases.flatten(1)
    return flat.reshape(-1, *bases.shape[1:])


_estimates: WeakKeyDictionary[Graph, NDArray[np.float64]] = WeakKeyDictionary()
"""Of a sample, [E] one over the share of the in-edges of an edge's target that was drawn."""

_shares: WeakKeyDictionary[Graph, dict[str, NDArray[Any]]] = WeakKeyDictionary()


def shares_of(graph: Graph, kind: np.dtype[Any]) -> NDArray[Any]:
    """[E] one over the number of in-edges that share an edge's target and type; made once for a graph."""
    known = _shares.setdefault(graph, {})
    if kind.str not in known:
        found = np.empty(graph.num_edges, kind)
        type_shares(graph.indptr, graph.edge_type, np.zeros(graph.num_relations, np.int64), found)
        known[kind.str] = found
    return known[kind.str]


def stacked(matrices: torch.Tensor, kind: np.dtype[Any], *, turned: bool) -> Table:
    """Matrices one below the other, as kernels take them."""
    found = matrices.detach().transpose(1, 2) if turned else matrices.detach()
    return pack(np.ascontiguousarray(found.reshape(-1, found.shape[2]).numpy()), None, kind)


_gather: Any = relation_range
_gather_weights: Any = relation_weights_range


class _RelationFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, graph: Graph, gather: RelationSum, x: torch.Tensor, matrices: torch.Tensor
    ) -> torch.Tensor:
        values = as_rows(x)
        rows = pack(values, None, storage(values.dtype, gather.precision))
        shares = gather.scales(graph, values.dtype)
        assert graph.edge_type is not None
        edges = typed_edges(graph.indptr, graph.indices, None, graph.edge_type, shares)
        out = _summed(edges, rows, x.shape[1], stacked(matrices, values.dtype, turned=False), values.dtype)
        ctx.settings = graph, gather, edges, rows, shares
        ctx.save_for_backward(x, matrices)
        return as_tensor(out, gather.out_channels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        graph, gather, edges, rows, shares = ctx.settings
        x, matrices = ctx.saved_tensors
        given = as_rows(gradients[0].contiguous())
        packed = pack(given, None, storage(given.dtype, gather.precision))
        back = graph.out_edges
        typed = typed_edges(back.indptr, back.indices, graph.out_numbers, graph.edge_type, shares)
        of_x = _summed(
            typed, packed, gather.out_channels, stacked(matrices, given.dtype, turned=True), given.dtype
        )
        width = x.shape[1]

        def part(chunk: Any) -> Table:
            found = zero_table(gather.relations * width, gather.out_channels, given.dtype)
            _gather_weights(*edges, rows, width, packed, found, None, *chunk)
            return found

        total = reduce(np.add, run_all(part, equal_chunks(edges.indptr, _CHUNKS)))
        of_matrices = torch.from_numpy(np.ascontiguousarray(total[:, : gather.out_channels])).reshape(
            matrices.shape
        )
        return None, None, as_tensor(of_x, width), of_matrices


def _summed(edges: TypedEdges, rows: Table, width: int, matrices: Table, kind: Any) -> Table:
    out = empty_table(len(edges.indptr) - 1, matrices.shape[1], kind)
    run_all(
        lambda chunk: _gather(*edges, rows, width, matrices, out, None, *chunk),
        equal_chunks(edges.indptr, _CHUNKS),
    )
    return out

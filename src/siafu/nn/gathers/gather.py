"""Gathers: what a layer does over the edges. Each is a small value; calling it runs it, differentiably.

Sum, Mean, Max    rows [V, C] → [V, C]
GcnSum            the same, normalised by the square roots of both ends' degrees
Softmax           rows [V, heads · C] and two logits [V, heads] → [V, heads · C]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.csr import self_loops
from siafu.nn.dropout import attention_seed
from siafu.nn.gathers.functions import AttentionFunction, MaxFunction, SumFunction, call
from siafu.nn.recording import recorder
from siafu.nn.tensors import PRECISIONS, Precision, check_rows

_ROWS_AT_ONCE = 1 << 18  # of factors that are computed


class Scaling(NamedTuple):
    """A sum gather's factors: out = post · (A + diag(self_weight)) · pre · x; None stands for no factor.

    self_weight: [V]; with it each vertex has one self-loop of that weight instead of its stored ones
    """

    self_weight: NDArray[Any] | None = None
    pre: NDArray[Any] | None = None
    post: NDArray[Any] | None = None


class SampledPart(NamedTuple):
    """A part of a graph: some vertices, and a sample of their in-edges.

    graph:    the whole; part: the part
    vertices: [N] numbers of the part's vertices in the whole
    shares:   [N] the share of each one's in-edges that is in the sample
    dtype:    of the rows that are gathered
    """

    graph: Graph
    part: Graph
    vertices: NDArray[np.int64]
    shares: NDArray[np.float64]
    dtype: torch.dtype


@dataclass(frozen=True)
class Gather:
    """What the edges do with rows; `precision` is how rows are stored while they are gathered."""

    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise BadInput(
                f"precision is {self.precision!r}: choose {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}"
            )

    def __call__(
        self,
        graph: Graph,
        *sent: torch.Tensor,
        dropout: float = 0.0,
        parameters: tuple[torch.Tensor, ...] = (),
    ) -> torch.Tensor:
        """Run it over `graph`'s in-edges on what `transform` gave; parameters: of the model, if it takes any."""
        who = recorder()
        if who is not None:
            return who.gather(self, sent, dropout, parameters)
        options: dict[str, Any] = {}
        if dropout:
            options["dropout"] = dropout
        if parameters:
            options["parameters"] = parameters
        return self.run(graph, *sent, **options)

    def run(self, graph: Graph, *sent: Any, **options: Any) -> torch.Tensor:
        raise NotImplementedError

    def width(self, sent: int) -> int:
        """Columns of what comes out, of those of the first rows that are sent."""
        return sent

    @property
    def title(self) -> str:
        """Its name where a program is explained."""
        return type(self).__name__

    @property
    def reduces_messages(self) -> bool:
        """Whether an edge function may give it messages: its type has a `reduce` of its own. That of a base may lack factors."""
        return "reduce" in vars(type(self))

    def reduce(self, graph: Graph, first: int, last: int, messages: torch.Tensor) -> torch.Tensor:
        """Rows of the vertices first:last, of the messages of their in-edges."""
        raise refused_messages(self)

    def lend(self, graph: Graph, part: Graph, vertices: NDArray[np.int64], dtype: torch.dtype) -> None:
        """Have it treat `part` as it does `graph`, of which that holds these vertices and not all of their edges."""

    @property
    def takes_samples(self) -> bool:
        """Whether it can be estimated from some of a vertex's in-edges: its type has an `estimate` of its own."""
        return "estimate" in vars(type(self))

    def estimate(self, sampled: SampledPart) -> None:
        """Have it estimate over the part what it gives over the whole graph."""
        raise BadInput(f"{self.title} cannot be estimated from a sample of the edges")


def refused_messages(gather: Gather) -> BadInput:
    """Why an edge function cannot be gathered so."""
    return BadInput(f"apply_edge goes with Sum, Mean or Max, not {type(gather).__name__}")


@dataclass(frozen=True)
class Sum(Gather):
    """out_i = Σ_j w_ij x_j over the stored in-edges; edge weights count unless `weighted` is False."""

    weighted: bool = True

    def scaling(self, graph: Graph, dtype: torch.dtype) -> Scaling:
        """The factors that make a plain sum this gather, in the type of the rows; made once for a graph."""
        known = _scalings.setdefault(graph, {})
        if (self, dtype) not in known:
            kind = np.float64 if dtype == torch.float64 else np.float32
            found = self._scaling(graph, kind)
            known[self, dtype] = Scaling(
                *(None if each is None else each.astype(kind, copy=False) for each in found)
            )
        return known[self, dtype]

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        """The factors, computed in float64; kind: the type that they are wanted in."""
        return Scaling()

    def run(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        check_rows("x", x, graph)
        return call(SumFunction, x, graph, self.weighted, self.scaling(graph, x.dtype), self.precision)

    def reduce(self, graph: Graph, first: int, last: int, messages: torch.Tensor) -> torch.Tensor:
        if self.weighted and graph.edge_weight is not None:
            lo, hi = graph.indptr[first], graph.indptr[last]
            messages = messages * torch.from_numpy(graph.edge_weight[lo:hi]).to(messages.dtype)[:, None]
        zeros = messages.new_zeros((last - first, messages.shape[1]))
        return zeros.index_add(0, _targets(graph, first, last), messages)

    def lend(self, graph: Graph, part: Graph, vertices: NDArray[np.int64], dtype: torch.dtype) -> None:
        whole = self.scaling(graph, dtype)
        _scalings.setdefault(part, {})[self, dtype] = Scaling(
            *(None if factor is None else factor[vertices] for factor in whole)
        )

    def estimate(self, sampled: SampledPart) -> None:
        graph, part, vertices, shares, dtype = sampled
        how = self.over_sample(graph, vertices, shares, np.diff(part.indptr), dtype)
        pre = None if how.pre is None else how.pre[vertices]
        _scalings.setdefault(part, {})[self, dtype] = how._replace(pre=pre)

    def over_sample(
        self,
        graph: Graph,
        vertices: NDArray[np.int64],
        shares: NDArray[np.float64],
        counts: NDArray[np.int64],
        dtype: torch.dtype,
    ) -> Scaling:
        """Factors that make a sum over a sample of the in-edges of some vertices an estimate of this gather.

        `pre` has a factor for each vertex of the graph, the others one for each of `vertices`.

        shares: of their in-edges that are in the sample; counts: how many those are
        """
        # The sum over a sample, divided by its share, is that over all edges on average; a self-loop is always there.
        whole = self.scaling(graph, dtype)
        kept: NDArray[Any] = shares.astype(np.float64 if dtype == torch.float64 else np.float32)
        return Scaling(
            None if whole.self_weight is None else whole.self_weight[vertices] * kept,
            whole.pre,
            1 / kept if whole.post is None else whole.post[vertices] / kept,
        )


@dataclass(frozen=True)
class Mean(Sum):
    """out_i = the mean of x_j over the stored in-edges, each counted once; 0 where there are none."""

    weighted: bool = False

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        post = np.empty(graph.num_vertices, kind)
        for rows in _row_blocks(graph):
            post[rows] = 1.0 / np.maximum(np.diff(graph.indptr[rows.start : rows.stop + 1]), 1)
        return Scaling(post=post)

    def reduce(self, graph: Graph, first: int, last: int, messages: torch.Tensor) -> torch.Tensor:
        total = super().reduce(graph, first, last, messages)
        lengths = np.diff(graph.indptr[first : last + 1])
        return total / torch.from_numpy(np.maximum(lengths, 1)).to(total.dtype)[:, None]

    def estimate(self, sampled: SampledPart) -> None:
        super().estimate(sampled)

    def over_sample(
        self,
        graph: Graph,
        vertices: NDArray[np.int64],
        shares: NDArray[np.float64],
        counts: NDArray[np.int64],
        dtype: torch.dtype,
    ) -> Scaling:
        """The mean over a sample is that over all edges on average."""
        kind = np.float64 if dtype == torch.float64 else np.float32
        return Scaling(post=(1.0 / np.maximum(counts, 1)).astype(kind))


@dataclass(frozen=True)
class GcnSum(Sum):
    """out_i = d_i^-½ Σ_j w_ij d_j^-½ x_j, with d the in-degrees; one self-loop a vertex if `self_loops`.

    A stored self-loop takes the place of the added one and keeps its weight, as in PyG.

    loop_weight: of an added self-loop
    """

    self_loops: bool = True
    loop_weight: float = 1.0

    def _scaling(self, graph: Graph, kind: type[Any]) -> Scaling:
        weights = graph.edge_weight if self.weighted else None
        factor = np.empty(graph.num_vertices, kind)
        if not self.self_loops:
            for rows in _row_blocks(graph):
                factor[rows] = _inverse_root(_in_weight(graph, weights, rows))
            return Scaling(None, factor, factor)
        self_weight = np.full(graph.num_vertices, self.loop_weight, kind)
        vertex, position = stored_loops(graph) if graph.num_self_loops else (np.empty(0, np.int64),) * 2
        stored = np.ones(len(vertex)) if weights is None else weights[position].astype(np.float64)
        for rows in _row_blocks(graph):
            degree, loop = _in_weight(graph, weights, rows), np.full(rows.stop - rows.start, self.loop_weight)
            found = slice(*np.searchsorted(vertex, (rows.start, rows.stop)))
            np.subtract.at(degree, vertex[found] - rows.start, stored[found])
            # As PyG does it: the last of several parallel self-loops is the one that stays.
            loop[vertex[found] - rows.start] = stored[found]
            self_weight[rows] = loop
            factor[rows] = _inverse_root(degree + loop)
        return Scaling(self_weight, factor, factor)

    def estimate(self, sampled: SampledPart) -> None:
        super().estimate(sampled)


@dataclass(frozen=True)
class Max(Gather):
    """out_i = the greatest x_j of each column over the stored in-edges; 0 where there are none."""

    def run(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        check_rows("x", x, graph)
        return call(MaxFunction, x, graph, self.precision)

    def reduce(self, graph: Graph, first: int, last: int, messages: torch.Tensor) -> torch.Tensor:
        where = _targets(graph, first, last)[:, None].expand_as(messages)
        # From -inf on: PyTorch gives a share of the gradient to a start that equals the maximum, even if left out.
        lowest = messages.new_full((last - first, messages.shape[1]), -torch.inf)
        greatest = lowest.scatter_reduce(0, where, messages, "amax")
        empty = torch.from_numpy(np.diff(graph.indptr[first : last + 1]) == 0)
        return greatest.masked_fill(empty[:, None], 0)

    def estimate(self, sampled: SampledPart) -> None:
        """The greatest of a sample: at most that of all edges."""


@dataclass(frozen=True)
class Softmax(Gather):
    """out_i = Σ_j a_ij x_j, a_ij the softmax over i's in-edges of leaky_relu(source_j + target_i), by head.

    self_loops: each vertex has exactly one self-loop; else the stored edges as they are
    dropout:    share of the a_ij put to zero, given per call since it applies in training only
    """

    heads: int = 1
    slope: float = 0.2
    self_loops: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.slope <= 1:
            raise BadInput(f"negative_slope is {self.slope}: it must lie between 0 and 1")
        if self.heads < 1:
            raise BadInput(f"heads is {self.heads}: there must be at least one")

    def run(
        self,
        graph: Graph,
        x: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        *,
        dropout: float = 0.0,
    ) -> torch.Tensor:
        check_rows("x", x, graph)
        if x.shape[1] % self.heads:
            raise BadInput(f"x has {x.shape[1]} columns, which {self.heads} heads cannot share evenly")
        for name, logits in (("source", source), ("target", target)):
            check_rows(name, logits, graph)
            if logits.shape[1] != self.heads or logits.dtype != x.dtype:
                raise BadInput(
                    f"{name} is {logits.dtype} of shape {list(logits.shape)}: give a logit of x's type for each of the {self.heads} heads"
                )
        seed = attention_seed() if dropout > 0 else 0
        return call(AttentionFunction, x, source, target, graph, self, dropout, seed)

    def estimate(self, sampled: SampledPart) -> None:
        """A softmax over the sample."""


_scalings: WeakKeyDictionary[Graph, dict[tuple[Sum, torch.dtype], Scaling]] = WeakKeyDictionary()


def _targets(graph: Graph, first: int, last: int) -> torch.Tensor:
    """The target of every in-edge of the vertices first:last, counted from `first`."""
    return torch.from_numpy(np.repeat(np.arange(last - first), np.diff(graph.indptr[first : last + 1])))


def _row_blocks(graph: Graph) -> Iterator[slice]:
    """Rows in blocks: of a large graph numbers in float64 for every vertex would take more than what is made of them."""
    for first in range(0, graph.num_vertices, _ROWS_AT_ONCE):
        yield slice(first, min(first + _ROWS_AT_ONCE, graph.num_vertices))


def _in_weight(graph: Graph, weights: NDArray[Any] | None, rows: slice) -> NDArray[np.float64]:
    """Number of the in-edges of some rows, or the sum of their weights."""
    starts = graph.indptr[rows.start : rows.stop + 1]
    if weights is None:
        return np.diff(starts).astype(np.float64)
    busy = np.flatnonzero(np.diff(starts))
    degree = np.zeros(rows.stop - rows.start)
    if len(busy):
        some = weights[starts[0] : starts[-1]]
        degree[busy] = np.add.reduceat(some, starts[busy] - starts[0], dtype=np.float64)
    return degree


def _inverse_root(degree: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(degree != 0, degree**-0.5, 0)


def stored_loops(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The vertex and the position of every stored self-loop, ascending."""
    return self_loops(graph.in_edges)

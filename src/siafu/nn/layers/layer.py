"""Layer: one step of message passing, in the four parts that Siafu can place apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.gathers.edgewise import gather_messages
from siafu.nn.gathers.gather import Gather, Sum
from siafu.nn.recording import recorder
from siafu.nn.sample_graph import SampleGraph


class Layer(nn.Module):
    """A graph layer: per vertex, over the edges, per vertex.

        sent     = transform(x)                 per vertex: what it sends along its out-edges
        messages = apply_edge(source, target)   per edge, optional: what an edge makes of it
        gathered = gather(graph, sent)          over a vertex's in-edges: Sum, Mean, Max, Softmax, …
        out      = apply_vertex(gathered, x)    per vertex: what becomes of it

    Override what you need. `transform` and `apply_vertex` see each vertex's row alone, so that rows can be
    computed anywhere and in any order; only `gather` looks along edges.
    """

    gather: Gather = Sum()
    apply_edge: ClassVar[Any] = None
    """Override with a method `apply_edge(self, source, target)`: rows [k, C] of k edges' ends → messages [k, D].

    It is called with some edges at a time, and again in the backward pass: no tensor of all edges is ever made.
    """

    linear_first: bool | None = None
    """Where a linear map that commutes with the gather stands: in `transform` (True) or in `apply_vertex` (False).

    Set it where your layer can do either, and let both methods look at it: training then chooses the side that gathers
    narrower rows, or none at all. None: there is nothing to choose.
    """

    def transform(self, x: torch.Tensor) -> Any:
        return x

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return gathered

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(graph, Graph):
            raise BadInput(f"a layer is called as layer(graph, x), not with {type(graph).__name__} first")
        who = recorder()
        if who is not None:
            who.entered(self)
        elif isinstance(graph, SampleGraph):
            return self._sampled(graph, x)
        elif len(x) != graph.num_vertices:
            raise BadInput(f"x has {len(x)} rows but the graph has {graph.num_vertices} vertices")
        return self.apply_vertex(self.propagate(graph, self.transform(x)), x)

    def _sampled(self, graph: SampleGraph, x: torch.Tensor) -> torch.Tensor:
        """Rows of the vertices that have their edges in a sample; with one graph for all layers, of every vertex."""
        if graph.first is not None and graph.first.layer is self:
            with self._linear(first=False):
                return self.apply_vertex(graph.first.rows, x)
        part = graph.of(len(x))
        with self._linear(first=self._maps_first(part, x)):
            gathered = self.propagate(part, self.transform(x))
            if part.rows == len(x):
                return self.apply_vertex(gathered, x)
            return self.apply_vertex(gathered[: part.rows], x[: part.rows])

    def _maps_first(self, part: SampleGraph, x: Any) -> bool | None:
        """Whether a linear map stands before the gather of a sample, if there is a choice."""
        if not isinstance(x, torch.Tensor):
            return True  # rows without their zeros, which can be multiplied and no more
        # Far fewer rows come out than go in: a map of all takes longer than a gather of wider rows.
        return False if part.rows < len(x) else self.linear_first

    @contextmanager
    def _linear(self, *, first: bool | None) -> Iterator[None]:
        """Have the linear map stand before the gather, or after it, if there is a choice."""
        before = self.linear_first
        self.linear_first = before if before is None else first
        try:
            yield
        finally:
            self.linear_first = before

    def propagate(self, graph: Graph, sent: Any) -> torch.Tensor:
        """Run the gather on what `transform` gave."""
        if self.apply_edge is not None:
            if recorder() is not None and self.gather.reduces_messages:
                from siafu.nn.pyg.own_edges import messages_gathered

                found = messages_gathered(self, graph, sent)
                if found is not None:
                    return found
            return gather_messages(graph, sent, self.apply_edge, list(self.parameters()), self.gather)
        arguments = sent if isinstance(sent, tuple) else (sent,)
        return self.gather(graph, *arguments)

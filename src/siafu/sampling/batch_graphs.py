"""BatchGraphs: from samples to the graphs that a model is run over, which stand in for the whole one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph
from siafu.nn.gathers.gather import Gather, SampledPart
from siafu.nn.sample_graph import GatheredRows, SampleGraph
from siafu.sampling.sample import Sample


class BatchGraphs:
    """Makes the graph of a sample, over which gathers estimate what they give over the whole.

    gathers: those of the model
    sliced:  a layer is run on the rows that the layers after it need; else all are run on all vertices of the sample
    edge_rows: whether the model reads features of edges
    turned:  whether a gradient goes back along the edges of the first layer: they are put in that order, too
    """

    def __init__(
        self,
        graph: Graph,
        gathers: Sequence[Gather],
        dtype: torch.dtype,
        *,
        sliced: bool,
        edge_rows: bool,
        turned: bool = True,
    ) -> None:
        self._graph, self._gathers, self._dtype = graph, tuple(dict.fromkeys(gathers)), dtype
        self._sliced, self._edge_rows, self._turned = sliced, edge_rows, turned
        self._degrees = np.diff(graph.indptr)

    def of(self, sample: Sample, x: Tensor | None, first: GatheredRows | None = None) -> SampleGraph:
        """The graph of a sample.

        x:     the features of its vertices; None: the model gets them in another form
        first: the first layer's gather, if the sample has its leaves apart
        """
        given = None if x is None else x.numpy()
        if not self._sliced:
            return self._made(sample, sample.sizes[-1], sample.sizes[-1], given)
        sizes, found = sample.sizes, None
        if first is not None and len(sizes) == 1:
            return self._made(sample, sizes[0], sizes[0], given, first=first)
        for hop in range(1, len(sizes) - 1):
            found = self._made(sample, sizes[hop], sizes[hop - 1], None, found)
        return self._made(sample, sizes[-1], sizes[-2], given, found, first)

    def _made(
        self,
        sample: Sample,
        vertices: int,
        rows: int,
        x: NDArray[Any] | None,
        following: SampleGraph | None = None,
        first: GatheredRows | None = None,
    ) -> SampleGraph:
        """The first vertices of a sample, of which the first `rows` have their edges."""
        indptr = sample.edges.indptr[: vertices + 1]
        if rows < vertices:
            indptr = np.minimum(indptr, indptr[rows])
        count = int(indptr[-1])
        places, indices = sample.places[:count], sample.edges.indices[:count]
        weights = None if self._graph.edge_weight is None else self._graph.edge_weight[places]
        attr = (
            self._graph.edge_attr[places] if self._edge_rows and self._graph.edge_attr is not None else None
        )
        types = self._graph.edge_type
        found = SampleGraph(
            indptr,
            indices,
            weights,
            edge_attr=attr,
            edge_type=types[places] if self._edge_rows and types is not None else None,
            x=x,
            name=self._graph.name,
            first=first,
            rows=rows,
            next=following,
        )
        found.__dict__["is_symmetric"] = False  # nobody need look
        if x is None or self._turned or first is not None:
            _ = found.out_edges  # here, and not while others wait for the gradient
        self._estimate(found, sample.vertices[:vertices])
        return found

    def _estimate(self, part: SampleGraph, vertices: NDArray[np.int64]) -> None:
        shares = np.ones(len(vertices))
        degrees, drawn = self._degrees[vertices], np.diff(part.indptr)
        np.divide(drawn, degrees, out=shares, where=drawn > 0)
        sampled = SampledPart(self._graph, part, vertices, shares, self._dtype)
        for gather in self._gathers:
            gather.estimate(sampled)

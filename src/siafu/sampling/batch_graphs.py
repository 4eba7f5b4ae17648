"""BatchGraphs: from samples to the graphs that a model is run over, which stand in for the whole one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph
from siafu.graph.csr import Csr, transpose
from siafu.nn.gather import Gather
from siafu.nn.sample_graph import SampleGraph
from siafu.sampling.sample import Sample


class BatchGraphs:
    """Makes the graph of a sample, over which gathers estimate what they give over the whole.

    gathers: those of the model
    sliced:  a layer is run on the rows that the layers after it need; else all are run on all vertices of the sample
    """

    def __init__(
        self, graph: Graph, gathers: Sequence[Gather], dtype: torch.dtype, *, sliced: bool, edge_rows: bool
    ) -> None:
        self._graph, self._gathers, self._dtype = graph, tuple(dict.fromkeys(gathers)), dtype
        self._sliced, self._edge_rows = sliced, edge_rows
        self._degrees = np.diff(graph.indptr)

    def of(self, sample: Sample, x: Tensor) -> SampleGraph:
        """The graph of a sample; x: the features of its vertices."""
        if not self._sliced:
            return self._made(sample, sample.sizes[-1], sample.sizes[-1], sample.out_edges, x.numpy(), None)
        found: SampleGraph | None = None
        *inner, outer = range(1, len(sample.sizes))
        for hop in inner:
            found = self._made(sample, sample.sizes[hop], sample.sizes[hop - 1], None, None, found)
        return self._made(
            sample, sample.sizes[outer], sample.sizes[outer - 1], sample.out_edges, x.numpy(), found
        )

    def _made(
        self,
        sample: Sample,
        vertices: int,
        rows: int,
        out_edges: Csr | None,
        x: NDArray[Any] | None,
        following: SampleGraph | None,
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
        found = SampleGraph(
            indptr, indices, weights, edge_attr=attr, x=x, name=self._graph.name, rows=rows, next=following
        )
        # Known already: nobody need look, nor turn the edges of the outermost hop again.
        found.__dict__["is_symmetric"] = False
        found.__dict__["out_edges"] = self._turned(found, places, out_edges)
        self._estimate(found, sample.vertices[:vertices])
        return found

    def _turned(self, found: SampleGraph, places: NDArray[Any], out_edges: Csr | None) -> Csr:
        if out_edges is None:
            return transpose(found.in_edges)
        if self._graph.edge_weight is None:
            return out_edges._replace(weights=None)
        assert out_edges.weights is not None
        return out_edges._replace(weights=self._graph.edge_weight[out_edges.weights.astype(np.int64)])

    def _estimate(self, part: SampleGraph, vertices: NDArray[np.int64]) -> None:
        shares = np.ones(len(vertices))
        degrees, drawn = self._degrees[vertices], np.diff(part.indptr)
        np.divide(drawn, degrees, out=shares, where=drawn > 0)
        for gather in self._gathers:
            gather.estimate(self._graph, part, vertices, shares, self._dtype)

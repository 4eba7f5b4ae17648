"""FirstGather: a model's first gather over a sample, straight from the table of features."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph import Graph
from siafu.kernels.llvm.emit import MAX_TILE, TILE_STEP
from siafu.kernels.llvm.tiles import accumulate_onward, value_of
from siafu.nn.gathers.gather import Sum
from siafu.nn.layers.layer import Layer
from siafu.nn.sample_graph import GatheredRows
from siafu.sampling.sample import Sample


class FirstGather:
    """Sums, means and GCN's sums of features over the drawn edges of a batch.

    Features have no gradient, so whoever loads a batch can gather them. Leaves of a sample, most of its vertices, are read
    where they are stored: they are neither numbered nor copied, and no map is computed of them.

    layer:     that gathers them
    dtype:     of what is gathered
    normalize: whether each row of features is divided by the sum of its magnitudes
    x:         [V, columns] some columns of the features; None: all of the graph's
    """

    def __init__(
        self,
        graph: Graph,
        layer: Layer,
        dtype: torch.dtype,
        *,
        normalize: bool = False,
        x: NDArray[Any] | None = None,
    ) -> None:
        given = graph.x if x is None else x
        assert given is not None and isinstance(layer.gather, Sum), "the layer gathers sums of features"
        self._graph, self._layer, self._gather = graph, layer, layer.gather
        self._dtype, self._normalize = dtype, normalize
        self._degrees = np.diff(graph.indptr)
        self._x = given

    def of(
        self, sample: Sample, table: NDArray[Any] | None = None, rows: NDArray[Any] | None = None
    ) -> GatheredRows:
        """Rows of all vertices of a sample whose last hop has edges.

        table: features of the vertices that the sample reads, its own first; None: all vertices'
        rows:  [E] the place in the table of each drawn edge's source
        """
        assert sample.drawn is not None
        edges, vertices = sample.drawn, sample.vertices
        counts = np.diff(edges.indptr)
        degrees = self._degrees[vertices]
        shares = np.divide(counts, degrees, out=np.ones(len(vertices)), where=counts > 0)
        how = self._gather.over_sample(self._graph, vertices, shares, counts, self._dtype)
        kind = np.float64 if self._dtype == torch.float64 else np.float32
        weights = self._weights(sample, how.pre, kind, loops=how.self_weight is None)
        own = None if how.self_weight is None else how.self_weight * _picked(how.pre, vertices)
        out = np.empty((len(vertices), self._x.shape[1]), kind)
        x, sources, targets = self._x, edges.indices, vertices
        if table is not None and rows is not None:
            x, sources, targets = table, rows, np.arange(len(vertices), dtype=np.int64)
        given = x, edges.indptr, sources, weights, targets, own, how.post
        if self._normalize or kind is np.float64 or out.shape[1] < TILE_STEP:
            _gather(*given, self._normalize, out)
        else:
            _gather_tiles(*given, out)
        return GatheredRows(self._layer, torch.from_numpy(out))

    def _weights(
        self, sample: Sample, pre: NDArray[Any] | None, kind: type[Any], *, loops: bool
    ) -> NDArray[Any] | None:
        """A factor for each edge, with that of its source; None: 1. loops: whether stored self-loops count."""
        assert sample.drawn is not None and sample.drawn.weights is not None
        edges, stored = sample.drawn, self._graph.edge_weight if self._gather.weighted else None
        if stored is None and pre is None and (loops or not self._graph.num_self_loops):
            return None
        found = np.ones(len(edges.indices), kind) if pre is None else pre[edges.indices]
        if stored is not None:
            found *= stored[edges.weights]
        if not loops and self._graph.num_self_loops:
            found[edges.indices == np.repeat(sample.vertices, np.diff(edges.indptr))] = 0
        return found


def _picked(factors: NDArray[Any] | None, vertices: NDArray[np.int64]) -> Any:
    return 1 if factors is None else factors[vertices]


@kernel
def _gather(
    x: Any,
    indptr: Any,
    sources: Any,
    weights: Any,
    vertices: Any,
    own: Any,
    scale: Any,
    normalize: bool,
    out: Any,
) -> None:
    """out[i] = scale[i] · (own[i] · x[vertices[i]] + Σ weights[e] · x[sources[e]]) over row i's edges; None: 1, and no own row."""
    one = out.dtype.type(1)
    for i in range(len(out)):
        row = out[i]
        row[:] = 0
        if own is not None:
            _add(x, vertices[i], own[i], normalize, row, 0)
        for e in range(indptr[i], indptr[i + 1]):
            _add(x, sources[e], one if weights is None else weights[e], normalize, row, 0)
        _scale(row, scale, i)


@kernel
def _gather_tiles(
    x: Any, indptr: Any, sources: Any, weights: Any, vertices: Any, own: Any, scale: Any, out: Any
) -> None:
    """`_gather` of float32 and bfloat16 into float32, a tile of columns at a time: its sums stay in registers."""
    one = out.dtype.type(1)
    whole, end = len(x[0]) // TILE_STEP * TILE_STEP, indptr[len(out)]
    for i in range(len(out)):
        row, lo, hi = out[i], indptr[i], indptr[i + 1]
        row[:] = 0
        if own is not None:
            _add(x, vertices[i], own[i], False, row, 0)
        for c in range(0, whole, MAX_TILE):
            tile = min(whole - c, MAX_TILE)
            accumulate_onward(out, i, x, sources, lo, -1, -1, hi, end, c, tile, weights)
        if whole < len(row):
            for e in range(lo, hi):
                _add(x, sources[e], one if weights is None else weights[e], False, row, whole)
        _scale(row, scale, i)


@kernel
def _add(x: Any, source: Any, weight: Any, normalize: bool, row: Any, first: int) -> None:
    """Add the columns from `first` on."""
    if normalize:
        total = weight - weight
        for c in range(len(row)):
            total += abs(value_of(x, source, c))
        if total > 0:
            weight = weight / total
    for c in range(first, len(row)):
        row[c] += weight * value_of(x, source, c)


@kernel
def _scale(row: Any, scale: Any, i: int) -> None:
    if scale is not None:
        factor = scale[i]
        for c in range(len(row)):
            row[c] *= factor

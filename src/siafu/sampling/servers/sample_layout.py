"""The layout of features for mini-batches on several servers: by vertices or by columns, whichever moves fewer bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.nn.sample_graph import GatheredRows
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.sample import Sample
from siafu.sampling.sampled_model import SampledBatch, SampledModel
from siafu.sampling.servers.column_rows import ColumnBatch
from siafu.sampling.servers.moved import Moved, RemoteVertices, structure_bytes, weight_bytes
from siafu.sampling.servers.server_loads import moved_by_vertices, shares_of
from siafu.sampling.servers.shares import share_of
from siafu.server.gathers.by_columns.column_space import slices_of


@dataclass(frozen=True, slots=True)
class Products:
    """Products of a model with its features.

    columns: of the sums that a server pulls for each vertex of its share
    weights: names of the weights
    """

    columns: float
    weights: frozenset[str]


@dataclass(frozen=True, slots=True)
class SampleLayout:
    """Bytes of an epoch in both layouts, by some of its batches.

    columns: None: the model does something else with features than to multiply them
    """

    vertices: Moved
    columns: Moved | None

    @property
    def chosen(self) -> str:
        by_columns = self.columns is not None and self.columns.total < self.vertices.total
        return "columns" if by_columns else "vertices"

    def told(self, layout: str) -> str:
        """Both prices, and the layout that is taken, in words."""
        other = "cannot be" if self.columns is None else f"move {self.columns.total / 1e6:,.1f} MB"
        return (
            f"features go by {layout}: vertices move {self.vertices.total / 1e6:,.1f} MB an epoch between servers "
            f"({self.vertices.features / 1e6:,.1f} of features), columns {other}"
        )


def products_of(
    model: SampledModel,
    graphs: BatchGraphs,
    sample: Sample,
    features: int,
    weights: Mapping[str, Tensor],
    y: Tensor,
    layer: object | None,
    dtype: torch.dtype,
) -> Products | None:
    """Run the model on a sample of one vertex whose features are zeros, by columns, and see what it asks for.

    layer: the first, if its gather is run beforehand
    """
    servers = 2
    cuts = slices_of(features, servers)
    zeros = [torch.zeros(len(sample.vertices), cut.stop - cut.start, dtype=dtype) for cut in cuts]
    names = ("x",) if layer is None else ("x", "gathered")
    columns = ColumnBatch(dict.fromkeys(names, zeros), cuts)
    share = share_of(sample, slice(0, 1))
    first = None if layer is None else GatheredRows(layer, columns.rows("gathered", share.rows))  # type: ignore[arg-type]
    graph = graphs.of(share.sample, None, first)
    x = columns.rows("x", share.rows)
    try:
        model.run(SampledBatch(0, 0, share.sample.vertices, 1, graph, x, y[:1], sample.num_edges), weights, 0)
    except (BadInput, TypeError, AttributeError, RuntimeError):
        return None  # whatever it is: it is no product
    used = frozenset(columns.weight_gradients())
    return Products(columns.pulled_numbers / (servers - 1) / len(share.rows), used) if used else None


def sample_layout(
    samples: Sequence[tuple[Sample, int]],
    batches: int,
    servers: int,
    remote: RemoteVertices,
    row: int,
    products: Products | None,
    weights: Mapping[str, Tensor],
    learnt: frozenset[str],
    *,
    places: bool = False,
) -> SampleLayout:
    """Both prices of an epoch.

    samples: of some batches, with the number of the vertices of each batch
    batches: of the epoch
    row:     bytes of a row of features
    places:  as `structure_bytes`
    """
    vertices, columns = Moved(), Moved()
    for number, (sample, size) in enumerate(samples):
        shares = shares_of(sample, size, servers)
        vertices += moved_by_vertices(shares, number % servers, remote, row, places=places)
        vertices += Moved(weights=_weight_bytes(weights, learnt, len(shares)))
        if products is not None:
            itemsize = next(iter(weights.values())).element_size()
            rows = sum(len(share.rows) for _, share in shares)
            columns += Moved(
                structure=(servers - 1) * structure_bytes(sample, places=places),
                products=round(2 * (servers - 1) * rows * products.columns) * itemsize,
                weights=_weight_bytes(weights, learnt - products.weights, len(shares)),
            )
    scale = batches / len(samples)
    return SampleLayout(_scaled(vertices, scale), None if products is None else _scaled(columns, scale))


def _weight_bytes(weights: Mapping[str, Tensor], names: frozenset[str], shares: int) -> int:
    return sum(weight_bytes(weights[name].numel(), weights[name].element_size(), shares) for name in names)


def _scaled(moved: Moved, by: float) -> Moved:
    parts = (moved.structure, moved.features, moved.products, moved.weights)
    return Moved(*(round(each * by) for each in parts))


def spread(batches: Sequence[NDArray[np.int64]], most: int) -> list[NDArray[np.int64]]:
    """Some batches, evenly from all."""
    places = np.unique(np.linspace(0, len(batches) - 1, min(most, len(batches)), dtype=np.int64))
    return [batches[place] for place in places]

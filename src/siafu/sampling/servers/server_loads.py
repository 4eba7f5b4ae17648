"""Loads of several servers: a batch in shares, with features by vertices or by columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.nn.sample_graph import GatheredRows
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.batch_loader import OneServer
from siafu.sampling.first_gather import FirstGather
from siafu.sampling.sample import Sample
from siafu.sampling.sampled_model import SampledBatch
from siafu.sampling.servers.column_rows import ColumnBatch
from siafu.sampling.servers.moved import Moved, RemoteVertices, feature_bytes, structure_bytes
from siafu.sampling.servers.served_batch import ServedBatch
from siafu.sampling.servers.shares import BatchShare, share_of
from siafu.server.gathers.by_columns.column_space import slices_of
from siafu.server.rows.feature_rows import FeatureRows


class ByVertices:
    """Every server has the features of its own vertices, and fetches those of others that its share reads.

    servers: how many there are
    one:     loads a share as if it were a batch of its own
    remote:  counts what is fetched
    row:     bytes of a row of features
    places:  as `structure_bytes`
    """

    def __init__(
        self, servers: int, one: OneServer, remote: RemoteVertices, row: int, *, places: bool = False
    ) -> None:
        self._servers, self._one, self._remote, self._row = servers, one, remote, row
        self._places = places

    def __call__(self, sample: Sample, epoch: int, number: int, vertices: NDArray[np.int64]) -> ServedBatch:
        shares = shares_of(sample, len(vertices), self._servers)
        moved = moved_by_vertices(
            shares, number % self._servers, self._remote, self._row, places=self._places
        )
        loaded = [self._one(each.sample, epoch, number, vertices[each.seeds]) for _, each in shares]
        return ServedBatch(
            epoch, number, sample.vertices, sample.num_edges, tuple(loaded), None, moved, self._servers
        )


class ByColumns:
    """Every server has some columns of all features (P3): they never travel, sums of products do.

    tables: each server's columns of the features
    graphs: makes the graphs of shares
    y:      [V, …] the target
    firsts: run the first layer's gather on each server's columns; None: the model multiplies features themselves
    places: as `structure_bytes`
    """

    def __init__(
        self,
        tables: Sequence[FeatureRows],
        graphs: BatchGraphs,
        y: Tensor,
        firsts: Sequence[FirstGather] | None,
        layer: object,
        *,
        places: bool = False,
    ) -> None:
        self._places = places
        self._tables, self._graphs, self._y, self._firsts, self._layer = tables, graphs, y, firsts, layer
        columns = sum(each.width for each in tables)
        self._cuts = slices_of(columns, len(tables))

    def __call__(self, sample: Sample, epoch: int, number: int, vertices: NDArray[np.int64]) -> ServedBatch:
        servers = len(self._tables)
        columns = ColumnBatch(self._slices(sample), self._cuts)
        shares = shares_of(sample, len(vertices), servers)
        loaded = [self._share(each, columns, epoch, number, vertices[each.seeds]) for _, each in shares]
        moved = Moved(structure=(servers - 1) * structure_bytes(sample, places=self._places))
        return ServedBatch(
            epoch, number, sample.vertices, sample.num_edges, tuple(loaded), columns, moved, servers
        )

    def _slices(self, sample: Sample) -> dict[str, list[Tensor]]:
        found = {"x": [each.of(sample.vertices) for each in self._tables]}
        if self._firsts is not None:
            found["gathered"] = [each.of(sample).rows for each in self._firsts]
        return found

    def _share(
        self, share: BatchShare, columns: ColumnBatch, epoch: int, number: int, seeds: NDArray[np.int64]
    ) -> SampledBatch:
        sample, x = share.sample, columns.rows("x", share.rows)
        first: Any = None
        if self._firsts is not None:
            first = GatheredRows(self._layer, columns.rows("gathered", share.rows))  # type: ignore[arg-type]
        graph = self._graphs.of(sample, None, first)
        return SampledBatch(
            epoch, number, sample.vertices, len(seeds), graph, x, self._y[seeds], sample.num_edges
        )


def shares_of(sample: Sample, size: int, servers: int) -> list[tuple[int, BatchShare]]:
    """Every server's share of a batch of `size` vertices, with its number; those without a vertex have none."""
    cuts = enumerate(slices_of(size, servers))
    return [(server, share_of(sample, cut)) for server, cut in cuts if cut.stop > cut.start]


def moved_by_vertices(
    shares: Sequence[tuple[int, BatchShare]],
    drawer: int,
    remote: RemoteVertices,
    row: int,
    *,
    places: bool = False,
) -> Moved:
    """Shares go from the server that drew the sample to the others, and features to all that read them."""
    return Moved(
        structure=sum(
            structure_bytes(each.sample, places=places) for server, each in shares if server != drawer
        ),
        features=sum(feature_bytes(remote.count(each.sample, server), row) for server, each in shares),
    )


def sliced_features(features: FeatureRows, servers: int) -> list[FeatureRows]:
    """Each server's columns of the features, in memory: it reads no others of the store."""
    return [features.columns(cut) for cut in slices_of(features.width, servers)]

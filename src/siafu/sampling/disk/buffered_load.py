"""Loads of batches whose features come through a buffer, and the loader that ends it."""

import numpy as np
from numpy.typing import NDArray

from siafu.base.activity import Activity
from siafu.sampling.batch_loader import BatchLoader
from siafu.sampling.disk.feature_buffer import FeatureBuffer
from siafu.sampling.read_vertices import ReadVertices
from siafu.sampling.sample import Sample
from siafu.sampling.sampled_model import SampledBatch
from siafu.sampling.sampled_plan import SampledPlan
from siafu.sampling.table_load import TableLoad


class BufferedServer:
    """Loads batches for one server, as `OneServer`, with features from a buffer."""

    def __init__(self, parts: SampledPlan, buffer: FeatureBuffer) -> None:
        self._load, self._buffer = TableLoad(parts), buffer
        self._reads = ReadVertices(parts.plan.graph.num_vertices)

    def __call__(self, sample: Sample, epoch: int, number: int, vertices: NDArray[np.int64]) -> SampledBatch:
        reads, rows = sample.vertices, None
        if sample.drawn is not None:
            reads, rows = self._reads.of(sample.vertices, sample.drawn.indices)
        table, read = self._buffer.rows(epoch, number, reads)
        return self._load.of(sample, table, rows, epoch, number, read)


class BufferedLoader(BatchLoader[SampledBatch]):
    """Ends the buffer with its threads."""

    def __init__(
        self, parts: SampledPlan, activity: Activity, epochs: range, *, threads: int, ahead: int
    ) -> None:
        assert parts.order is not None
        self._buffer = FeatureBuffer(parts.plan.features.stored, parts.order, parts.ordered, epochs)
        load = BufferedServer(parts, self._buffer)
        super().__init__(parts.sampler(), load, activity, threads=threads, ahead=ahead)

    def close(self) -> None:
        self._buffer.close()
        super().close()

"""BatchLoader: batches prepared ahead by other threads, a bounded number of them, and given in their order."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.activity import About, Activity
from siafu.runtime.one_thread import use_one_thread
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.first_gather import FirstGather
from siafu.sampling.sample import Sample
from siafu.sampling.sampled_model import SampledBatch
from siafu.sampling.sampler import Sampler
from siafu.sampling.sparse_features import SparseFeatures

SERVER = "graph server 0"
"""Name under which work is recorded: there is one server."""

Planned = tuple[int, int, NDArray[np.int64]]
"""Epoch, number and vertices of a batch."""


class ReadyBatch(Protocol):
    """A batch that is ready to be computed, as far as a run looks at it."""

    @property
    def epoch(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def num_vertices(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def read_bytes(self) -> int: ...


B = TypeVar("B", bound=ReadyBatch, covariant=True)


class Load(Protocol[B]):
    """Makes a batch of its sample."""

    def __call__(self, sample: Sample, epoch: int, number: int, vertices: NDArray[np.int64]) -> B: ...


class OneServer:
    """Loads batches for one server.

    features: rows of some vertices
    y:        [V, …] the target
    first:    runs the first layer's gather; None: the model does
    """

    def __init__(
        self,
        graphs: BatchGraphs,
        features: Callable[[NDArray[np.int64]], Tensor | SparseFeatures],
        y: Tensor,
        first: FirstGather | None = None,
    ) -> None:
        self._graphs, self._features, self._y, self._first = graphs, features, y, first

    def __call__(self, sample: Sample, epoch: int, number: int, vertices: NDArray[np.int64]) -> SampledBatch:
        first = None if self._first is None else self._first.of(sample)
        x = self._features(sample.vertices)
        graph = self._graphs.of(sample, x if isinstance(x, Tensor) else None, first)
        y = self._y[vertices]
        return SampledBatch(epoch, number, sample.vertices, len(vertices), graph, x, y, sample.num_edges)


class BatchLoader(Generic[B]):
    """Samples batches and loads their features, at most `ahead` before they are wanted."""

    def __init__(
        self, sampler: Sampler, load: Load[B], activity: Activity, *, threads: int, ahead: int
    ) -> None:
        self._sampler, self._load, self._activity, self._ahead = sampler, load, activity, ahead
        self._tracks, self._own = count(1), threading.local()
        self._pool = ThreadPoolExecutor(threads, "siafu-sample", initializer=use_one_thread)

    def batches(self, planned: Iterator[Planned]) -> Iterator[B]:
        """The batches, in the order in which they are planned."""
        waiting: deque[Future[B]] = deque()
        try:
            waiting.extend(self._pool.submit(self._prepared, *each) for each in islice(planned, self._ahead))
            while waiting:
                found = waiting.popleft().result()
                waiting.extend(self._pool.submit(self._prepared, *each) for each in islice(planned, 1))
                yield found
        finally:
            for each in waiting:
                each.cancel()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _prepared(self, epoch: int, number: int, vertices: NDArray[np.int64]) -> B:
        began = time.perf_counter()
        sample = self._sampler.sample(vertices, epoch, number)
        sampled = time.perf_counter()
        found = self._load(sample, epoch, number, vertices)
        ended = time.perf_counter()
        about = About(SERVER, epoch, number)
        self._activity.note(about, "sample", self._track, began, sampled)
        self._activity.note(about, "load", self._track, sampled, ended)
        return found

    @property
    def _track(self) -> int:
        """This thread's number among those that load; 0 is the one that computes."""
        if not hasattr(self._own, "track"):
            self._own.track = next(self._tracks)
        found: int = self._own.track
        return found


def planned_batches(
    batches: Callable[[int], Sequence[NDArray[np.int64]]], epochs: range
) -> Iterator[Planned]:
    """Every batch of some epochs; batches: of an epoch."""
    for epoch in epochs:
        for number, batch in enumerate(batches(epoch)):
            yield epoch, number, batch

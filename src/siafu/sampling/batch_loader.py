"""BatchLoader: batches prepared ahead by other threads, a bounded number of them, and given in their order."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.activity import About, Activity
from siafu.runtime.one_thread import use_one_thread
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.batches import epoch_batches
from siafu.sampling.sampled_model import SampledBatch
from siafu.sampling.sampler import Sampler

SERVER = "graph server 0"
"""Name under which work is recorded: there is one server."""

Planned = tuple[int, int, NDArray[np.int64]]
"""Epoch, number and vertices of a batch."""


class BatchLoader:
    """Samples batches and loads their features, at most `ahead` before they are wanted.

    features: rows of some vertices
    y:        [V, …] the target
    """

    def __init__(
        self,
        sampler: Sampler,
        graphs: BatchGraphs,
        features: Callable[[NDArray[np.int64]], Tensor],
        y: Tensor,
        activity: Activity,
        *,
        threads: int,
        ahead: int,
    ) -> None:
        self._sampler, self._graphs, self._features, self._y = sampler, graphs, features, y
        self._activity, self._ahead = activity, ahead
        self._tracks, self._own = count(1), threading.local()
        self._pool = ThreadPoolExecutor(threads, "siafu-sample", initializer=use_one_thread)

    def batches(self, planned: Iterator[Planned]) -> Iterator[SampledBatch]:
        """The batches, in the order in which they are planned."""
        waiting: deque[Future[SampledBatch]] = deque()
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

    def _prepared(self, epoch: int, number: int, vertices: NDArray[np.int64]) -> SampledBatch:
        began = time.perf_counter()
        sample = self._sampler.sample(vertices, epoch, number)
        sampled = time.perf_counter()
        graph = self._graphs.of(sample, self._features(sample.vertices))
        y = self._y[vertices]
        ended = time.perf_counter()
        about = About(SERVER, epoch, number)
        self._activity.note(about, "sample", self._track, began, sampled)
        self._activity.note(about, "load", self._track, sampled, ended)
        return SampledBatch(epoch, number, sample.vertices, len(vertices), graph, y, sample.num_edges)

    @property
    def _track(self) -> int:
        """This thread's number among those that load; 0 is the one that computes."""
        if not hasattr(self._own, "track"):
            self._own.track = next(self._tracks)
        found: int = self._own.track
        return found


def planned_batches(vertices: NDArray[np.int64], size: int, seed: int, epochs: range) -> Iterator[Planned]:
    """Every batch of some epochs."""
    for epoch in epochs:
        for number, batch in enumerate(epoch_batches(vertices, size, seed, epoch)):
            yield epoch, number, batch

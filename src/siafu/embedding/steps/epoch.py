"""One epoch: batches under way at the same time, or one after the other."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import thread_count
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.steps.lane import EmbeddingLane, TrainedTables, on_all_cores, one_by_one
from siafu.embedding.steps.negatives import Negatives
from siafu.runtime.one_thread import one_thread


@dataclass(slots=True)
class EpochLosses:
    """Measures of an epoch.

    staleness: the most earlier batches whose updates were missing when a batch was read
    """

    total: float = 0.0
    triples: int = 0
    batches: int = 0
    staleness: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def add(self, loss: float, triples: int, staleness: int) -> None:
        with self.lock:
            self.total += loss
            self.triples += triples
            self.batches += 1
            self.staleness = max(self.staleness, staleness)

    @property
    def mean(self) -> float:
        """The loss of a triple and a side."""
        return self.total / max(1, 2 * self.triples)


Batches = Iterator[tuple[NDArray[Any], Negatives, np.random.Generator]]
"""Triples by rows of the tables, what to draw negatives from, and the random numbers to draw with."""


class EpochRunner:
    """Runs batches of an epoch: with `exact` one by one, else as many at a time as there are threads, up to the bound."""

    def __init__(self, options: EmbedOptions, tables: TrainedTables) -> None:
        self._staleness = 1 if options.exact else options.staleness
        lanes = min(thread_count(), self._staleness)
        each = on_all_cores if options.exact else one_by_one
        self._lanes = [EmbeddingLane(options, tables, each) for _ in range(lanes)]

    def run(self, batches: Batches, losses: EpochLosses) -> None:
        """Run all batches. The first error ends it, after what is under way."""
        window = BatchWindow(batches, self._staleness)
        if len(self._lanes) == 1:
            _run_lane(self._lanes[0], window, losses)
            return
        errors: list[BaseException] = []

        def work(lane: EmbeddingLane) -> None:
            try:
                _run_lane(lane, window, losses)
            except BaseException as error:
                errors.append(error)
                window.close()

        threads = [threading.Thread(target=work, args=(lane,), name="siafu-lane") for lane in self._lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def _run_lane(lane: EmbeddingLane, window: "BatchWindow", losses: EpochLosses) -> None:
    with one_thread():
        while (begun := window.begin()) is not None:
            number, missing, (triples, sampler, random) = begun
            lane.load(triples, sampler, random)
            loss = lane.compute()
            lane.update()
            window.end(number)
            losses.add(loss, len(triples), missing)
            if not np.isfinite(loss):
                window.close()


class BatchWindow:
    """Hands out batches to several threads, each with its number; batch k begins when all up to k - bound are written.

    So the vectors that a batch reads lack at most the updates of the bound - 1 batches before it.
    """

    def __init__(self, batches: Batches, bound: int) -> None:
        self._batches = batches
        self._bound = bound
        self._next = 0
        self._under_way: set[int] = set()
        self._closed = False
        self._changed = threading.Condition()

    def begin(self) -> tuple[int, int, Any] | None:
        """The next batch: its number, how many before it are not written yet, and what it is. None: there is none."""
        with self._changed:
            self._changed.wait_for(self._may_begin)
            batch = None if self._closed else next(self._batches, None)
            if batch is None:
                self._closed = True
                self._changed.notify_all()
                return None
            number, missing = self._next, len(self._under_way)
            self._next += 1
            self._under_way.add(number)
            return number, missing, batch

    def _may_begin(self) -> bool:
        return self._closed or self._next - min(self._under_way, default=self._next) < self._bound

    def end(self, number: int) -> None:
        """A batch is written."""
        with self._changed:
            self._under_way.remove(number)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more is handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

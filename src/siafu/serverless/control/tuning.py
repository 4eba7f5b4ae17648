"""Tuning: the number of Lambdas of a run, chosen anew after every epoch."""

import threading
import time

from siafu.serverless.control.autotuner import next_count
from siafu.serverless.control.queue_watch import Period, QueueWatch


class Tuning:
    """Watches a graph server's queues, and applies the autotuner's rule. Any thread may call.

    counts: number of Lambdas of each epoch
    """

    def __init__(self, first: int, limit: int) -> None:
        self.counts: list[int] = []
        self._count, self._limit = first, limit
        self._watch = QueueWatch(time.monotonic())
        self._history: list[Period] = []
        self._lock = threading.Lock()
        self._graph = self._waiting = self._running = 0

    def graph_queue(self, waiting: int) -> None:
        """Note the number of jobs that wait for a core now."""
        with self._lock:
            self._graph = waiting
            self._note()

    def tensor_queue(self, waiting: int, running: int) -> None:
        """Note the number of tensor tasks that wait for a Lambda now, and that run on one."""
        with self._lock:
            self._waiting, self._running = waiting, running
            self._note()

    def end_epoch(self) -> int:
        """End an epoch; returns the number of Lambdas from now on."""
        with self._lock:
            self._history.append(self._watch.end_period(time.monotonic(), self._count))
            self.counts.append(self._count)
            self._count = next_count(self._history, self._limit)
            return self._count

    def _note(self) -> None:
        self._watch.note(
            time.monotonic(),
            graph_waiting=self._graph,
            tensor_waiting=self._waiting,
            tensor_running=self._running,
        )

"""Pool: threads that run the most urgent of the jobs that are ready, and sleep when there are none."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

Urgency = tuple[Any, ...]
Job = Callable[[], None]


class Pool:
    """Jobs in, most urgent first, over `threads` threads; a job may add others.

    busy_seconds: what the jobs took, by the kind they were added with
    watch:        hears how many jobs wait, whenever that changes; it must be quick
    """

    def __init__(
        self,
        threads: int,
        failed: Callable[[BaseException], None],
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self.busy_seconds: dict[str, float] = {}
        self._failed, self._watch = failed, watch
        self._ready: list[tuple[Urgency, int, str, Job]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = self._halted = False
        self._running = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"siafu-task-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, urgency: Urgency, kind: str, job: Job) -> None:
        """Run `job` when nothing more urgent (lower) is ready; of equals the first added."""
        with self._changed:
            heapq.heappush(self._ready, (urgency, next(self._order), kind, job))
            self._tell()
            self._changed.notify()

    def abandon(self) -> None:
        """Forget the jobs that wait, let none begin, and return when none runs; `resume` lets them begin again."""
        with self._changed:
            self._halted = True
            while self._running:
                self._changed.wait()
            self._ready.clear()

    def resume(self) -> None:
        """Jobs may begin again."""
        with self._changed:
            self._halted = False
            self._changed.notify_all()

    def close(self) -> None:
        """Run nothing more, and wait for what is running."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def _next(self) -> tuple[str, Job] | None:
        with self._changed:
            while (not self._ready or self._halted) and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            self._running += 1
            _, _, kind, job = heapq.heappop(self._ready)
            self._tell()
            return kind, job

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch(len(self._ready))

    def _work(self) -> None:
        while (found := self._next()) is not None:
            kind, job = found
            began = time.perf_counter()
            try:
                job()
            except BaseException as error:  # handed to who waits for the run
                self._failed(error)
                return
            finally:
                self._done(kind, time.perf_counter() - began)

    def _done(self, kind: str, spent: float) -> None:
        with self._changed:
            self.busy_seconds[kind] = self.busy_seconds.get(kind, 0.0) + spent
            self._running -= 1
            if self._halted:
                self._changed.notify_all()

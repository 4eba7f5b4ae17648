"""Pool: threads that run the most urgent of the jobs that are ready, and sleep when there are none."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from siafu.base.activity import About, Activity
from siafu.runtime.one_thread import use_one_thread

Urgency = tuple[Any, ...]


class After(NamedTuple):
    """What a job leaves to be done when its time is taken: to tell of its result, which may end an epoch.

    moved: bytes that the job sent away
    """

    then: Callable[[], None]
    moved: int = 0


Job = Callable[[], After | None]


class _Ready(NamedTuple):
    urgency: Urgency
    order: int
    kind: str
    job: Job
    about: About | None


class Pool:
    """Jobs in, most urgent first, over `threads` threads; a job may add others. PyTorch gives each job one thread.

    activity: what the jobs took, by the kind they were added with
    watch:    hears how many jobs wait, whenever that changes; it must be quick
    """

    def __init__(
        self,
        threads: int,
        failed: Callable[[BaseException], None],
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self.activity = Activity()
        self._failed, self._watch = failed, watch
        self._ready: list[_Ready] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = self._halted = False
        self._running = 0
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"siafu-task-{number}", daemon=True)
            for number in range(threads)
        ]

    @property
    def busy_seconds(self) -> dict[str, float]:
        """What the jobs took so far, by kind."""
        return self.activity.busy_seconds

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, urgency: Urgency, kind: str, job: Job, about: About | None = None) -> None:
        """Run `job` when nothing more urgent (lower) is ready; of equals the first added.

        about: what it is part of, for the trace; None: it is not traced
        """
        with self._changed:
            heapq.heappush(self._ready, _Ready(urgency, next(self._order), kind, job, about))
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

    def _next(self) -> _Ready | None:
        with self._changed:
            while (not self._ready or self._halted) and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            self._running += 1
            ready = heapq.heappop(self._ready)
            self._tell()
            return ready

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch(len(self._ready))

    def _work(self, thread: int) -> None:
        use_one_thread()
        while (ready := self._next()) is not None:
            try:
                self._run(thread, ready)
            except BaseException as error:  # handed to who waits for the run
                self._failed(error)
                return
            finally:
                self._done()

    def _run(self, thread: int, ready: _Ready) -> None:
        began = time.perf_counter()
        after = ready.job()
        ended = time.perf_counter()
        self.activity.note(ready.about, ready.kind, thread, began, ended, after.moved if after else 0)
        # Only now: what follows may be the end of the epoch, and this job's time is of the epoch that ends.
        if after is not None:
            after.then()

    def _done(self) -> None:
        with self._changed:
            self._running -= 1
            if self._halted:
                self._changed.notify_all()

"""Pool: threads that run the most urgent of the jobs that are ready, and sleep when there are none."""

import heapq
import itertools
import threading
import time
from collections import Counter
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
    owner: object


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
        self._closed = False
        self._halted: set[object] = set()
        self._running: Counter[object] = Counter()
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"siafu-task-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(
        self, urgency: Urgency, kind: str, job: Job, about: About | None = None, owner: object = None
    ) -> None:
        """Run `job` when nothing more urgent (lower) is ready; of equals the first added.

        about: what it is part of, for the trace; None: it is not traced
        owner: for whom it is done: who can halt it
        """
        with self._changed:
            heapq.heappush(self._ready, _Ready(urgency, next(self._order), kind, job, about, owner))
            self._tell()
            self._changed.notify()

    def halt(self, owner: object) -> None:
        """Let no job of `owner` begin, and return when none of them runs."""
        with self._changed:
            self._halted.add(owner)
            while self._running[owner]:
                self._changed.wait()

    def forget(self, owner: object) -> None:
        """Drop the jobs of `owner` that wait."""
        with self._changed:
            self._ready = [each for each in self._ready if each.owner != owner]
            heapq.heapify(self._ready)

    def resume(self, owner: object) -> None:
        """Jobs of `owner` may begin again."""
        with self._changed:
            self._halted.discard(owner)
            self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether no job runs, and none that waits may begin."""
        with self._changed:
            return not any(self._running.values()) and all(each.owner in self._halted for each in self._ready)

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
            while not self._closed:
                if (ready := self._take()) is not None:
                    self._running[ready.owner] += 1
                    self._tell()
                    return ready
                self._changed.wait()
            return None

    def _take(self) -> _Ready | None:
        """The most urgent job that may begin."""
        if not self._halted:
            return heapq.heappop(self._ready) if self._ready else None
        may = [each for each in self._ready if each.owner not in self._halted]
        if not may:
            return None
        first = min(may)
        self._ready.remove(first)
        heapq.heapify(self._ready)
        return first

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
                self._done(ready.owner)

    def _run(self, thread: int, ready: _Ready) -> None:
        began = time.perf_counter()
        after = ready.job()
        ended = time.perf_counter()
        self.activity.note(ready.about, ready.kind, thread, began, ended, after.moved if after else 0)
        # Only now: what follows may be the end of the epoch, and this job's time is of the epoch that ends.
        if after is not None:
            after.then()

    def _done(self, owner: object) -> None:
        with self._changed:
            self._running[owner] -= 1
            if self._halted:
                self._changed.notify_all()

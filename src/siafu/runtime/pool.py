"""Pool: threads that run the most urgent of the jobs that are ready, and sleep when there are none."""

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from siafu.base.activity import About, Activity
from siafu.base.compiling import compile_seconds
from siafu.runtime.one_thread import record_nothing, use_one_thread

Urgency = tuple[Any, ...]

_WORTH_A_THREAD = 150e-6
"""CPU seconds of a job that is worth a second thread: two threads with shorter ones spend their time handing each other the GIL."""
_LONGEST_COUNTED = 2 * _WORTH_A_THREAD
"""A longer job counts as this long: one that was held up among short ones leaves them short."""
_WAITED = 10e-3
"""Seconds of a job that has waited for more than the GIL: for a disk, say."""
_FADING = 0.8


class After(NamedTuple):
    """A call that follows a job, after its time was measured: it tells the result, which may end an epoch.

    moved: bytes that the job sent
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

    activity: spans and busy seconds of the jobs, by kind
    watch:    called with the number of jobs that wait, whenever it changes; it must be quick
    """

    def __init__(
        self,
        threads: int,
        failed: Callable[[BaseException], None],
        watch: Callable[[int], None] | None = None,
        prepare: Callable[[], None] = use_one_thread,
    ) -> None:
        """prepare: called first in each thread; it lowers its priority, say"""
        self.activity = Activity()
        self._failed, self._watch, self._prepare = failed, watch, prepare
        self._ready: list[_Ready] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._work_there, self._job_ended = threading.Condition(self._lock), threading.Condition(self._lock)
        self._asleep = 0
        self._usual: dict[str, float] = {}  # CPU seconds of the latest jobs on average, by kind
        self._short = 0  # number of jobs under way that end soon
        self._own = threading.local()
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

        about: server, epoch and interval, for the trace; None: not traced
        owner: the server that can halt it
        """
        with self._lock:
            heapq.heappush(self._ready, _Ready(urgency, next(self._order), kind, job, about, owner))
            self._tell()
            # A thread that is about to look for its next job takes this one, and wakes others for the rest.
            if self._asleep and not getattr(self._own, "looks_next", False):
                self._work_there.notify()

    def halt(self, owner: object) -> None:
        """Let no job of `owner` begin, and return when none of them runs."""
        with self._lock:
            self._halted.add(owner)
            while self._running[owner]:
                self._job_ended.wait()

    def forget(self, owner: object) -> None:
        """Drop the jobs of `owner` that wait."""
        with self._lock:
            self._ready = [each for each in self._ready if each.owner != owner]
            heapq.heapify(self._ready)

    def resume(self, owner: object) -> None:
        """Jobs of `owner` may begin again."""
        with self._lock:
            self._halted.discard(owner)
            self._work_there.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether no job runs, and none that waits may begin."""
        with self._lock:
            return not any(self._running.values()) and all(each.owner in self._halted for each in self._ready)

    def close(self) -> None:
        """Begin no job any more, and wait for those that run."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._work_there.notify_all()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def _next(self) -> _Ready | None:
        with self._lock:
            while not self._closed:
                if not self._is_left_to_another() and (ready := self._take()) is not None:
                    self._running[ready.owner] += 1
                    self._own.short = short = self._is_short(ready.kind)
                    self._short += short
                    self._tell()
                    if self._asleep and self._ready and not (short and self._is_short(self._ready[0].kind)):
                        self._work_there.notify()
                    return ready
                self._asleep += 1
                self._work_there.wait()
                self._asleep -= 1
            return None

    def _is_short(self, kind: str) -> bool:
        return self._usual.get(kind, _LONGEST_COUNTED) < _WORTH_A_THREAD

    def _is_left_to_another(self) -> bool:
        """Whether the most urgent job is short, and a thread that has a short one will look for its next job at once."""
        return bool(self._short and self._ready) and self._is_short(self._ready[0].kind)

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
        self._prepare()
        use_one_thread()
        record_nothing()
        while (ready := self._next()) is not None:
            try:
                self._run(thread, ready)
            except BaseException as error:  # handed to who waits for the run
                self._failed(error)
                return
            finally:
                self._done(ready.owner)

    def _run(self, thread: int, ready: _Ready) -> None:
        compiled, used, began = compile_seconds(), time.thread_time(), time.perf_counter()
        after = ready.job()
        ended, used, compiling = time.perf_counter(), time.thread_time() - used, compile_seconds() - compiled
        moved = after.moved if after else 0
        self.activity.note(ready.about, ready.kind, thread, began, ended, moved, compiling)
        # Not the time that it waited for the GIL, and half of what two threads on one core took: those that fight would never
        # find their jobs short.
        alone = used if sum(self._running.values()) < 2 else used / 2
        taken = min(alone if ended - began < _WAITED else ended - began, _LONGEST_COUNTED)
        self._usual[ready.kind] = _FADING * self._usual.get(ready.kind, taken) + (1 - _FADING) * taken
        # Only now: what follows may be the end of the epoch, and this job's time is of the epoch that ends.
        if after is not None:
            self._own.looks_next = True
            after.then()
            self._own.looks_next = False

    def _done(self, owner: object) -> None:
        with self._lock:
            self._running[owner] -= 1
            self._short -= self._own.short
            if self._halted:
                self._job_ended.notify_all()

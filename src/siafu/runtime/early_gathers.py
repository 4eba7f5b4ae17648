"""EarlyGathers: gathers that threads with nothing else to do begin with the rows that are there."""

import threading
from collections.abc import Callable

from siafu.pipeline.ids import Address, IntervalId, LaneName
from siafu.pipeline.instructions import BeginTask
from siafu.pipeline.schedule import Schedule
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task
from siafu.runtime.pool import Pool
from siafu.server.worker import GraphWorker

LATER = (1,)
"""Urgency of work that nobody waits for yet: after every task."""

_Key = tuple[LaneName, IntervalId]


class EarlyGathers:
    """The gathers of one graph server that may be begun; those that run first are begun first, a part at a time.

    How far each has come is known by the worker alone: whoever comes to a gather adds what is not added yet.
    """

    def __init__(self, setup: Setup, worker: GraphWorker, pool: Pool, server: Address) -> None:
        self._worker, self._pool, self._server = worker, pool, server
        self._parts = setup.gather_parts
        self._schedules: dict[LaneName, Schedule] = {"train": setup.training, "evaluate": setup.evaluation}
        self._sources = {way: setup.layout.sources(server.index, way) for way in setup.layout.reads}
        self._may: dict[_Key, BeginTask] = {}
        self._added: dict[_Key, int] = {}  # sources, by the gathers that are begun
        self._under_way: set[_Key] = set()
        self._to_run: dict[_Key, Callable[[], None]] = {}
        self._asked = False
        self._lock = threading.Lock()

    def begin(self, what: BeginTask) -> None:
        """A gather may be begun, or go on."""
        if self._worker.can_begin(what.task):
            with self._lock:
                self._may[what.task.lane, what.task.interval] = what
                self._ask()

    def end(self, task: Task, run: Callable[[], None]) -> None:
        """All rows of a gather are there: nobody begins it any more. Call `run` when nobody is adding to it."""
        key = task.lane, task.interval
        with self._lock:
            self._may.pop(key, None)
            self._added.pop(key, None)
            if key in self._under_way:
                self._to_run[key] = run
                return
        run()

    def forget(self) -> None:
        """Forget what may be begun: no job runs, and the pool has forgotten the one that waited."""
        with self._lock:
            self._may.clear()
            self._added.clear()
            self._to_run.clear()
            self._asked = False

    def _ask(self) -> None:
        """Let one job wait for a thread, if there is anything for it to do."""
        if not self._asked and self._may.keys() - self._under_way:
            self._asked = True
            self._pool.add(LATER, "gathers begun", self._work, owner=self._server)

    def _work(self) -> None:
        with self._lock:
            self._asked = False
            able = self._may.keys() - self._under_way
            if not able:
                return
            key = min(able, key=lambda each: self._may[each].task.priority)
            task, missing = self._may[key].task, self._next_part(key)
            self._under_way.add(key)
            self._ask()
        try:
            self._worker.begin(task, missing)
        finally:
            with self._lock:
                self._under_way.remove(key)
                run = self._to_run.pop(key, None)
                self._ask()
        if run is not None:
            run()

    def _next_part(self, key: _Key) -> tuple[IntervalId, ...]:
        """Go on to the end of a gather's next part, or of what is there; the sources that come after it."""
        what = self._may[key]
        sent = self._schedules[what.task.lane][what.task.stage.reads[0]]
        sources = self._sources[sent.direction]
        there = sources.index(what.until)
        # No longer at a time: a task that becomes ready meanwhile waits for the thread.
        added = min(there, self._added.get(key, 0) + max(1, len(sources) // self._parts))
        self._added[key] = added
        if added == there:
            del self._may[key]
        return sources[added:]

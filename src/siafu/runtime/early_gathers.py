"""EarlyGathers: gathers that threads with nothing else to do begin with the rows that are there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
    """The gathers of one graph server that may be begun; those that run first are begun first.

    How far each has come is known by the worker alone: whoever comes to a gather adds what is not added yet.
    """

    def __init__(self, setup: Setup, worker: GraphWorker, pool: Pool, server: Address) -> None:
        self._worker, self._pool, self._server = worker, pool, server
        self._schedules: dict[LaneName, Schedule] = {"train": setup.training, "evaluate": setup.evaluation}
        self._sources = {way: setup.layout.sources(server.index, way) for way in setup.layout.reads}
        self._may: dict[_Key, BeginTask] = {}
        self._under_way: set[_Key] = set()
        self._asked = False
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)

    def begin(self, what: BeginTask) -> None:
        """A gather may be begun, or go on."""
        if self._worker.can_begin(what.task):
            with self._lock:
                self._may[what.task.lane, what.task.interval] = what
                self._ask()

    @contextmanager
    def ending(self, task: Task) -> Iterator[None]:
        """While a task runs: nobody begins it any more, and whoever did has ended."""
        key = task.lane, task.interval
        with self._lock:
            self._may.pop(key, None)
            while key in self._under_way:
                self._ended.wait()
        yield

    def forget(self) -> None:
        """Forget what may be begun: no job runs, and the pool has forgotten the one that waited."""
        with self._lock:
            self._may.clear()
            self._asked = False

    def _ask(self) -> None:
        """Let one job wait for a thread, if there is anything for it to do."""
        if not self._asked and not self._may.keys() <= self._under_way:
            self._asked = True
            self._pool.add(LATER, "gathers begun", self._work, owner=self._server)

    def _work(self) -> None:
        with self._lock:
            self._asked = False
            able = [key for key in self._may if key not in self._under_way]
            if not able:
                return
            key = min(able, key=lambda each: self._may[each].task.priority)
            what = self._may.pop(key)
            self._under_way.add(key)
            self._ask()
        try:
            self._worker.begin(what.task, self._missing(what))
        finally:
            with self._lock:
                self._under_way.remove(key)
                self._ended.notify_all()
                self._ask()

    def _missing(self, what: BeginTask) -> tuple[IntervalId, ...]:
        """The sources whose rows may not be there."""
        sent = self._schedules[what.task.lane][what.task.stage.reads[0]]
        sources = self._sources[sent.direction]
        return sources[sources.index(what.until) :]

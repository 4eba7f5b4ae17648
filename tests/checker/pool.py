"""Pool: the cores or the Lambdas of one graph server, and the tasks that wait for them."""

import heapq
from collections.abc import Callable

from siafu.pipeline.instructions import RunTask
from siafu.pipeline.task import Priority


class Pool:
    """Starts the ready task that comes first, whenever a worker is free."""

    def __init__(self, workers: int, start: Callable[[RunTask], None]) -> None:
        self._free = workers
        self._start = start
        self._ready: list[tuple[Priority, int, RunTask]] = []
        self._noted = 0

    def add(self, run: RunTask) -> None:
        if self._free:
            self._free -= 1
            self._start(run)
            return
        self._noted += 1
        heapq.heappush(self._ready, (run.task.priority, self._noted, run))

    def release(self) -> None:
        """A worker is free again."""
        if self._ready:
            self._start(heapq.heappop(self._ready)[2])
        else:
            self._free += 1

    def clear(self) -> None:
        """Forget the tasks that wait."""
        self._ready.clear()

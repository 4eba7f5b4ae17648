"""TaskTimes: spans, counts and latencies of tasks on Lambdas, for a run's metrics and its trace."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from siafu.base.activity import About, Activity, Taken
from siafu.serverless.control.ids import InvocationId, SlotId, TaskId


@dataclass(frozen=True, slots=True)
class LambdaActivity:
    """Work of Lambdas for an epoch, and since the last report.

    seconds:   what tasks took since the last report, by epoch and kind
    taken:     spans of the epoch and those before it
    counts:    since the last report; but `count` is the number of Lambdas that there may be now
    latencies: seconds from offer to result, of the tasks finished since the last report
    """

    seconds: Mapping[int, Mapping[str, float]]
    taken: Taken
    counts: Mapping[str, float]
    latencies: tuple[float, ...]


class TaskTimes:
    """Times of tasks on Lambdas. One thread notes them; any may read."""

    def __init__(self) -> None:
        self.activity = Activity()
        self._slots: dict[InvocationId, SlotId] = {}
        self._offers: dict[InvocationId, dict[TaskId, float]] = {}
        self._free: dict[InvocationId, float] = {}
        self._latencies: list[float] = []
        self._told: Mapping[str, float] = {}

    def invoked(self, invocation: InvocationId, slot: SlotId) -> None:
        """Note that a Lambda was invoked."""
        self._slots[invocation] = slot
        self._offers[invocation] = {}

    def offered(self, invocation: InvocationId, task: TaskId) -> None:
        """Note an offer to a Lambda; of several offers of one task the first counts."""
        offers = self._offers.get(invocation)
        if offers is not None:
            offers.setdefault(task, time.perf_counter())

    def came_back(
        self, invocation: InvocationId, task: TaskId, kind: str, about: About | None, moved: int
    ) -> None:
        """Note the result that counts.

        moved: bytes sent and received
        """
        offered = self._offers.get(invocation, {}).pop(task, None)
        if offered is None:
            return
        now = time.perf_counter()
        # A Lambda may be told of a task while it is at another: it begins when that is done.
        began = max(offered, self._free.get(invocation, offered))
        self._free[invocation] = now
        self._latencies.append(now - offered)
        self.activity.note(about, kind, self._slots[invocation], began, now, moved)

    def ended(self, invocation: InvocationId) -> None:
        """Note the end of a Lambda."""
        for known in (self._slots, self._offers, self._free):
            known.pop(invocation, None)

    def take(self, epoch: int, counted: Mapping[str, float], count: int) -> LambdaActivity:
        """Activity of `epoch`.

        counted: counts of the controller and the meter since the run began
        """
        latencies, self._latencies = self._latencies, []
        since = {name: value - self._told.get(name, 0) for name, value in counted.items()}
        self._told = counted
        return LambdaActivity(
            *self.activity.drain(epoch), {"count": count, "tasks": len(latencies), **since}, tuple(latencies)
        )

"""TaskTimes: when which Lambda was at which task, and what was counted, for a run's metrics and its trace."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from siafu.base.activity import About, Activity, Taken
from siafu.serverless.control.ids import InvocationId, SlotId, TaskId


@dataclass(frozen=True, slots=True)
class LambdaDoings:
    """What Lambdas did for an epoch, and since they were last asked.

    taken:     for the epoch, and those before it
    counts:    since then; but `count`, how many there may be at a time, is of now
    latencies: of the tasks that came back since then: seconds from the offer to a Lambda until the result is here
    """

    taken: Taken
    counts: Mapping[str, float]
    latencies: tuple[float, ...]


class TaskTimes:
    """One thread tells what happens; any may ask."""

    def __init__(self) -> None:
        self.activity = Activity()
        self._slots: dict[InvocationId, SlotId] = {}
        self._offers: dict[InvocationId, dict[TaskId, float]] = {}
        self._free: dict[InvocationId, float] = {}
        self._latencies: list[float] = []
        self._told: Mapping[str, float] = {}

    def invoked(self, invocation: InvocationId, slot: SlotId) -> None:
        """A Lambda was asked for."""
        self._slots[invocation] = slot
        self._offers[invocation] = {}

    def offered(self, invocation: InvocationId, task: TaskId) -> None:
        """It was told of a task; of several times the first counts."""
        offers = self._offers.get(invocation)
        if offers is not None:
            offers.setdefault(task, time.perf_counter())

    def came_back(
        self, invocation: InvocationId, task: TaskId, kind: str, about: About | None, moved: int
    ) -> None:
        """The result that counts is here.

        moved: bytes there and back
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
        """A Lambda is gone."""
        for known in (self._slots, self._offers, self._free):
            known.pop(invocation, None)

    def take(self, epoch: int, counted: Mapping[str, float], count: int) -> LambdaDoings:
        """What was done for `epoch`.

        counted: by the controller and the meter, since the run began
        """
        latencies, self._latencies = self._latencies, []
        since = {name: value - self._told.get(name, 0) for name, value in counted.items()}
        self._told = counted
        return LambdaDoings(
            self.activity.take(epoch), {"count": count, "tasks": len(latencies), **since}, tuple(latencies)
        )

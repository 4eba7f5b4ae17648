"""TaskTable: the tasks whose results are wanted, and those of them that wait for a Lambda."""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from siafu.serverless.ids import InvocationId, Priority, Seconds, TaskId


@dataclass(slots=True)
class TaskState:
    """A task that has no result yet.

    offered:  when it was given to whom, last
    attempts: how often it was given out
    runner:   the Lambda that is expected to bring the result; None: it waits for one
    home:     tasks of one home are best done by one Lambda; None: anyone will do
    """

    id: TaskId
    kind: str
    priority: Priority
    offered: dict[InvocationId, Seconds] = field(default_factory=dict)
    attempts: int = 0
    runner: InvocationId | None = None
    home: int | None = None

    @property
    def rank(self) -> tuple[bool, Priority]:
        """Tasks of equal rank may be done in any order; the last of a priority's numbers only makes it definite."""
        return not self.offered, self.priority[:-1]


class TaskTable:
    """Those that were given out before go first, then by priority."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, TaskState] = {}
        self._waiting: set[TaskId] = set()
        self._heap: list[tuple[bool, Priority, TaskId]] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[TaskState]:
        return iter(self._tasks.values())

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def get(self, task: TaskId) -> TaskState | None:
        return self._tasks.get(task)

    def add(self, task: TaskId, kind: str, priority: Priority, home: int | None = None) -> None:
        self._tasks[task] = TaskState(task, kind, priority, home=home)
        self._wait(self._tasks[task])

    def give(self, task: TaskState, invocation: InvocationId, now: Seconds) -> None:
        """A task that waited is run by `invocation`."""
        self._waiting.discard(task.id)
        task.runner = invocation
        task.offered[invocation] = now
        task.attempts += 1

    def take_back(self, task: TaskState) -> None:
        """Its runner will not do; another Lambda is to run it."""
        task.runner = None
        self._wait(task)

    def finish(self, task: TaskState) -> None:
        del self._tasks[task.id]
        self._waiting.discard(task.id)

    def clear(self) -> None:
        self._tasks.clear()
        self._waiting.clear()
        self._heap.clear()

    def first(self) -> TaskState | None:
        """The one to run next; None: none waits."""
        while self._heap and self._heap[0][2] not in self._waiting:
            heapq.heappop(self._heap)
        return self._tasks[self._heap[0][2]] if self._heap else None

    def nearest(self, first: TaskState, known: Collection[int], others: Collection[int]) -> TaskState:
        """Of the tasks that rank as `first` does, one with a home in `known`; else one with a home not in `others`."""
        if first.home is None or first.home in known:
            return first
        ranked = [each for each in map(self._tasks.__getitem__, self._waiting) if each.rank == first.rank]
        ranked.sort(key=lambda each: (each.priority, each.id))
        for each in ranked:
            if each.home in known:
                return each
        return next((each for each in ranked if each.home not in others), first)

    def _wait(self, task: TaskState) -> None:
        self._waiting.add(task.id)
        heapq.heappush(self._heap, (not task.offered, task.priority, task.id))

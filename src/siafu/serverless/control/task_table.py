"""TaskTable: the tasks without a result, and those of them that wait for a Lambda."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from siafu.serverless.control.ids import InvocationId, Priority, Seconds, TaskId


@dataclass(slots=True)
class TaskState:
    """A task without a result.

    offered:  time of the last offer to each Lambda
    attempts: number of times it was given out
    runner:   the Lambda that is expected to send the result; None: the task waits for one
    home:     tasks of one home run best on one Lambda; None: any will do
    places:   number of tasks that a Lambda may have at once if this is one of them
    """

    id: TaskId
    kind: str
    priority: Priority
    places: int
    offered: dict[InvocationId, Seconds] = field(default_factory=dict)
    attempts: int = 0
    runner: InvocationId | None = None
    home: int | None = None

    @property
    def rank(self) -> tuple[bool, Priority, TaskId]:
        """Sort key: tasks that were given out before go first, then by priority."""
        return not self.offered, self.priority, self.id


class TaskTable:
    def __init__(self) -> None:
        self._tasks: dict[TaskId, TaskState] = {}
        self._waiting: set[TaskId] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[TaskState]:
        return iter(self._tasks.values())

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def most_places(self) -> int:
        """The most places of a task that waits."""
        return max((self._tasks[each].places for each in self._waiting), default=0)

    def get(self, task: TaskId) -> TaskState | None:
        return self._tasks.get(task)

    def add(self, task: TaskId, kind: str, priority: Priority, places: int, home: int | None = None) -> None:
        self._tasks[task] = TaskState(task, kind, priority, places, home=home)
        self._waiting.add(task)

    def give(self, task: TaskState, invocation: InvocationId, now: Seconds) -> None:
        """Give a task that waited to `invocation`."""
        self._waiting.discard(task.id)
        task.runner = invocation
        task.offered[invocation] = now
        task.attempts += 1

    def take_back(self, task: TaskState) -> None:
        """Take a task from its runner: it waits for another Lambda."""
        task.runner = None
        self._waiting.add(task.id)

    def finish(self, task: TaskState) -> None:
        del self._tasks[task.id]
        self._waiting.discard(task.id)

    def clear(self) -> None:
        self._tasks.clear()
        self._waiting.clear()

    def waiting(self) -> list[TaskState]:
        """Tasks that wait for a Lambda, the most urgent first."""
        return sorted((self._tasks[each] for each in self._waiting), key=lambda each: each.rank)

"""What happens to the controller. Rows and weights travel beside the events, never in them.

Lambdas and their platform may do anything: die, hang, answer twice, answer nonsense, speak after their end. Every event
but the runtime's own (`TaskQueued`, `TasksAbandoned`, `CountChanged`, `ClockAdvanced`) may come late, twice or never.
"""

from dataclasses import dataclass

from siafu.serverless.control.failure import Failure
from siafu.serverless.control.ids import InvocationId, PeerId, Priority, Seconds, TaskId


@dataclass(frozen=True, slots=True)
class Event:
    now: Seconds


# From the runtime


@dataclass(frozen=True, slots=True)
class TaskQueued(Event):
    """A graph server has a tensor task to run.

    kind: tasks of one kind take about the same time: the phase and its direction
    home: tasks of one home are best done by one Lambda, which has some of their rows already; None: anyone will do
    """

    task: TaskId
    kind: str
    priority: Priority = ()
    home: int | None = None


@dataclass(frozen=True, slots=True)
class TasksAbandoned(Event):
    """No one wants the results of the tasks queued so far."""


@dataclass(frozen=True, slots=True)
class CountChanged(Event):
    """From now on there should be at most `count` Lambdas; 0: let all go, the run has ended."""

    count: int


@dataclass(frozen=True, slots=True)
class ClockAdvanced(Event):
    """It is now so late. Owed once a `WakeAt` has passed; at any other time it does no harm."""


# From a Lambda


@dataclass(frozen=True, slots=True)
class LambdaAsks(Event):
    """A Lambda has nothing to do and asks for a task."""

    invocation: InvocationId
    peer: PeerId


@dataclass(frozen=True, slots=True)
class ResultArrived(Event):
    """All of a task's result is there.

    valid: every output that the task must have came, in its shape and type; False: garbage
    """

    invocation: InvocationId
    task: TaskId
    valid: bool


@dataclass(frozen=True, slots=True)
class TaskReturned(Event):
    """A Lambda will not do its task: it has too little time left, or cannot get what it needs. It may ask for another.

    why: in one line
    """

    invocation: InvocationId
    task: TaskId
    why: str


# From the invoker


@dataclass(frozen=True, slots=True)
class InvocationEnded(Event):
    """An invocation is over, or never began.

    failure: None: it returned a receipt
    """

    invocation: InvocationId
    failure: Failure | None = None

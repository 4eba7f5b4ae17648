"""Events of the controller. Rows and weights travel beside them, never in them.

Lambdas and their platform may do anything: die, hang, answer twice, answer nonsense, speak after their end. Every event
but the runtime's own (`TaskQueued`, `TasksAbandoned`, `CountChanged`, `ClockAdvanced`) may come late, twice or never.
"""

from dataclasses import dataclass

from siafu.serverless.control.failure import Failure
from siafu.serverless.control.ids import InvocationId, PeerId, Priority, Seconds, TaskId


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    now: Seconds


# From the runtime


@dataclass(frozen=True, slots=True)
class TaskQueued(ControllerEvent):
    """A graph server has a tensor task to run.

    kind: tasks of one kind take about the same time: the phase and its direction
    home: tasks of one home run best on one Lambda, which has some of their rows already; None: any will do
    places: number of tasks that a Lambda may have at once if this is one of them; None: the most
    """

    task: TaskId
    kind: str
    priority: Priority = ()
    home: int | None = None
    places: int | None = None


@dataclass(frozen=True, slots=True)
class TasksAbandoned(ControllerEvent):
    """No one wants the results of the tasks queued so far."""


@dataclass(frozen=True, slots=True)
class CountChanged(ControllerEvent):
    """From now on there should be at most `count` Lambdas; 0: let all go, the run has ended."""

    count: int


@dataclass(frozen=True, slots=True)
class ClockAdvanced(ControllerEvent):
    """The time is now `now`. Required after each `WakeAt`; harmless at any other time."""


# From a Lambda


@dataclass(frozen=True, slots=True)
class LambdaAsks(ControllerEvent):
    """A Lambda has nothing to do and asks for a task."""

    invocation: InvocationId
    peer: PeerId


@dataclass(frozen=True, slots=True)
class ResultArrived(ControllerEvent):
    """A task's result is complete.

    valid: every output has its name, shape and type; False: garbage
    """

    invocation: InvocationId
    task: TaskId
    valid: bool


@dataclass(frozen=True, slots=True)
class TaskReturned(ControllerEvent):
    """A Lambda returns its task: it has too little time left, or cannot get what it needs. It may ask for another.

    why: in one line
    """

    invocation: InvocationId
    task: TaskId
    why: str


# From the invoker


@dataclass(frozen=True, slots=True)
class InvocationEnded(ControllerEvent):
    """An invocation is over, or never began.

    failure: None: it returned a receipt
    """

    invocation: InvocationId
    failure: Failure | None = None

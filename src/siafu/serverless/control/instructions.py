"""Instructions of the controller to the runtime, to be obeyed in the order given."""

from dataclasses import dataclass
from typing import Literal

from siafu.serverless.control.ids import InvocationId, PeerId, Seconds, SlotId, TaskId

DropReason = Literal["duplicate", "garbage", "stranger"]
"""Why a result is dropped: the task has one or was abandoned; it is not valid; its sender was never given the task."""


@dataclass(frozen=True, slots=True)
class ControllerInstruction:
    pass


@dataclass(frozen=True, slots=True)
class Invoke(ControllerInstruction):
    """Start a Lambda that will call itself `invocation`; report its end by `InvocationEnded`."""

    invocation: InvocationId
    slot: SlotId


@dataclass(frozen=True, slots=True)
class CancelInvocation(ControllerInstruction):
    """End an invocation, where the platform can: nothing is expected of it any more."""

    invocation: InvocationId


@dataclass(frozen=True, slots=True)
class OfferTask(ControllerInstruction):
    """Offer a task to the peer that asked."""

    invocation: InvocationId
    peer: PeerId
    task: TaskId


@dataclass(frozen=True, slots=True)
class DismissLambda(ControllerInstruction):
    """Tell the peer that asked to return its receipt: there is no task for it."""

    invocation: InvocationId
    peer: PeerId


@dataclass(frozen=True, slots=True)
class Deliver(ControllerInstruction):
    """Take the result that just arrived: it is the task's only one."""

    task: TaskId
    invocation: InvocationId


@dataclass(frozen=True, slots=True)
class Drop(ControllerInstruction):
    """Throw away the result that just arrived."""

    task: TaskId
    invocation: InvocationId
    reason: DropReason


@dataclass(frozen=True, slots=True)
class WakeAt(ControllerInstruction):
    """Send `ClockAdvanced` at this time or soon after, whatever else happens. Replaces an earlier `WakeAt`."""

    time: Seconds


@dataclass(frozen=True, slots=True)
class Fail(ControllerInstruction):
    """The run cannot go on. No instruction follows.

    message: one line: what happened, where, and what to do
    final:   the user's input (account, function, version) is wrong
    """

    message: str
    final: bool = False

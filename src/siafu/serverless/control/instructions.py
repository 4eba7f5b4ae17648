"""What the controller asks of the runtime, to be done in the order given."""

from dataclasses import dataclass
from typing import Literal

from siafu.serverless.control.ids import InvocationId, PeerId, Seconds, SlotId, TaskId

Reason = Literal["duplicate", "garbage", "stranger"]
"""Why a result is not wanted: the task has one or was abandoned; it is not valid; who sent it was never given it."""


@dataclass(frozen=True, slots=True)
class Instruction:
    pass


@dataclass(frozen=True, slots=True)
class Invoke(Instruction):
    """Start a Lambda that will call itself `invocation`; report its end by `InvocationEnded`."""

    invocation: InvocationId
    slot: SlotId


@dataclass(frozen=True, slots=True)
class Cancel(Instruction):
    """Nothing is expected of an invocation any more: end it, where the platform can."""

    invocation: InvocationId


@dataclass(frozen=True, slots=True)
class OfferTask(Instruction):
    """Answer the peer that asked: this is your task."""

    invocation: InvocationId
    peer: PeerId
    task: TaskId


@dataclass(frozen=True, slots=True)
class Dismiss(Instruction):
    """Answer the peer that asked: there is nothing for you, return your receipt."""

    invocation: InvocationId
    peer: PeerId


@dataclass(frozen=True, slots=True)
class Deliver(Instruction):
    """The result that just arrived is the task's. It is the only one that will be."""

    task: TaskId
    invocation: InvocationId


@dataclass(frozen=True, slots=True)
class Drop(Instruction):
    """Throw away the result that just arrived."""

    task: TaskId
    invocation: InvocationId
    reason: Reason


@dataclass(frozen=True, slots=True)
class WakeAt(Instruction):
    """Send `ClockAdvanced` at this time or soon after, whatever else happens; it takes the place of an earlier one."""

    time: Seconds


@dataclass(frozen=True, slots=True)
class Fail(Instruction):
    """The run cannot go on. The last instruction there will be.

    message: one line: what happened, where, and what to do
    final:   it is what the user gave (account, function, version) that is wrong
    """

    message: str
    final: bool = False

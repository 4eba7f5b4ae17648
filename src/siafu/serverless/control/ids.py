"""The names of things that pass between the controller and its runtime."""

from typing import Any, NewType

TaskId = NewType("TaskId", int)
"""A tensor task's number. No two tasks of a run have the same, not even the same task after a restart."""

InvocationId = NewType("InvocationId", int)
"""A Lambda's number, counted by the controller: no two that it asks for have the same."""

SlotId = NewType("SlotId", int)
"""Where an invoker runs a Lambda: at most one at a time in each."""

PeerId = NewType("PeerId", str)
"""Who speaks, as the transport knows it. A Lambda that was invoked twice has one number and speaks as two peers."""

Seconds = float
"""By a clock that does not go back; where it does, the controller stays at the latest time it has seen."""

Priority = tuple[Any, ...]
"""The task with the lowest priority goes first."""

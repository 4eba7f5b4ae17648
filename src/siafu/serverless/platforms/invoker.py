"""Invoker: runs invocations of the handler somewhere else. The interface, and the outcomes of an invocation."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from siafu.base.errors import BadInput
from siafu.serverless.control.failure import Failure, FailureKind, one_line
from siafu.serverless.control.ids import InvocationId

MOST_BYTES = 6 * 1024 * 1024  # of a payload or an answer, as AWS has it


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of the handler.

    number:  no two of a run have the same; a relaunch has a number of its own
    payload: a small JSON object: where to ask for tasks, keys, limits
    """

    number: InvocationId
    payload: Mapping[str, Any]

    def body(self) -> bytes:
        """The payload as it travels."""
        body = json.dumps(self.payload, separators=(",", ":")).encode()
        if len(body) > MOST_BYTES:
            raise BadInput(f"the payload of invocation {self.number} has {len(body):,} bytes: 6 MB at most")
        return body


@dataclass(frozen=True, slots=True)
class Usage:
    """Billed time and memory of an invocation.

    billed_ms: whole milliseconds, rounded up, of running and of a cold start; 0 when it never ran
    memory_mb: memory that the Lambda has, not what it used
    init_ms:   the part of a cold start; None: the Lambda was warm, or its platform does not tell
    """

    billed_ms: int
    memory_mb: int
    init_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InvocationAnswered:
    """The handler returned its receipt, which is not checked yet."""

    number: InvocationId
    receipt: dict[str, Any]
    usage: Usage


@dataclass(frozen=True, slots=True)
class InvocationFailed:
    """The invocation is over, or never began, and there is no receipt."""

    number: InvocationId
    failure: Failure
    usage: Usage


InvocationOutcome = InvocationAnswered | InvocationFailed
Tell = Callable[[InvocationOutcome], None]


class Invoker(Protocol):
    """Runs invocations, many at once. Any thread may call.

    `tell` is called once an invocation, from a thread of the invoker, so it must be quick. It is called twice for an
    invocation that ran twice, which AWS does not rule out and the local invoker does on purpose when asked for faults.
    """

    def start(self) -> None:
        """Make ready. Settings that can never work are refused here: `BadInput`, one line."""

    def invoke(self, invocation: Invocation, tell: Tell) -> None:
        """Run the handler; returns at once, and `tell` gets the outcome."""

    def cancel(self, number: InvocationId) -> None:
        """End an invocation, where the platform can. Its outcome is still told."""

    def stop(self) -> None:
        """End everything; no outcome is told after that. Without effect before `start`."""


def outcome_of(number: InvocationId, body: bytes, usage: Usage, where: str) -> InvocationOutcome:
    """The outcome in an answer's bytes: a receipt, or the error that a runtime puts in its place."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        told = body[:200].decode(errors="replace")
        return InvocationFailed(number, failure_of("", f"the answer is no receipt: {told}", where), usage)
    if "errorType" in said or "errorMessage" in said:
        failure = failure_of(str(said.get("errorType", "")), str(said.get("errorMessage", "")), where)
        return InvocationFailed(number, failure, usage)
    return InvocationAnswered(number, said, usage)


def failure_of(error_type: str, message: str, where: str) -> Failure:
    """The failure that an error in place of a receipt means, in the words of Lambda's runtimes."""
    detail = one_line(f"{error_type}: {message}" if error_type else message)
    if "Task timed out after" in message or error_type == "Sandbox.Timedout":
        return Failure(FailureKind.TIMED_OUT, where, detail)
    if error_type in ("Runtime.OutOfMemory", "MemoryError", "numpy._core._exceptions._ArrayMemoryError"):
        return Failure(FailureKind.OUT_OF_MEMORY, where, detail)
    # The handler raises BadInput at a payload of another version; its other troubles are in its receipt.
    if error_type in (
        "BadInput",
        "Runtime.HandlerNotFound",
        "Runtime.ImportModuleError",
        "Runtime.UserCodeSyntaxError",
    ):
        return Failure(FailureKind.UNFIT, where, detail)
    return Failure(FailureKind.CRASHED, where, detail)

"""Failure: why an invocation failed, and what a person can do about it."""

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Causes of a failure that differ in what to do next."""

    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    SILENT = "silent"
    NO_FUNCTION = "no function"
    DENIED = "denied"
    UNFIT = "unfit"


_ADVICE = {
    FailureKind.THROTTLED: "ask for fewer with --lambda-count, or have the account's concurrency limit raised",
    FailureKind.UNAVAILABLE: "check the endpoint, the region and the network, then start again with --resume",
    FailureKind.CRASHED: "see `siafu lambda logs`",
    FailureKind.TIMED_OUT: "use more intervals, so that a task takes less time, or deploy with a longer timeout",
    FailureKind.OUT_OF_MEMORY: "use more intervals, so that a task takes less memory, or deploy with more of it",
    FailureKind.SILENT: "let the function's security group and subnets reach the graph servers' ports",
    FailureKind.NO_FUNCTION: "run `siafu lambda deploy`, or name the right function, region and account",
    FailureKind.DENIED: "use credentials that may invoke the function",
    FailureKind.UNFIT: "run `siafu lambda deploy` again: the function must be of this version of Siafu",
}

_FINAL = {FailureKind.NO_FUNCTION, FailureKind.DENIED, FailureKind.UNFIT}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an invocation failed.

    where:  the function and region, or the local slot
    detail: what the platform said, in one line
    """

    kind: FailureKind
    where: str
    detail: str

    @property
    def is_final(self) -> bool:
        """Whether trying again cannot help."""
        return self.kind in _FINAL

    def __str__(self) -> str:
        """One line: what happened, where, and what to do."""
        return f"{one_line(self.detail)} ({one_line(self.where)}); {_ADVICE[self.kind]}"


def one_line(text: str, limit: int = 300) -> str:
    """Text of a platform or a Lambda, fit to be shown: no line breaks, no control characters, at most `limit` long."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"

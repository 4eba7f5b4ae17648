"""ControllerCounts: numbers that a controller counts, for the run's summary and for tests."""

from collections import Counter
from dataclasses import dataclass, field

from siafu.serverless.control.failure import FailureKind
from siafu.serverless.control.instructions import DropReason


@dataclass(slots=True)
class ControllerCounts:
    """Numbers that a controller counts.

    invocations: Lambdas invoked
    delivered:   tasks with a result
    relaunched:  tasks given to another Lambda because one was late
    retried:     tasks given to another because one ended, gave it back, or brought garbage
    dropped:     results thrown away, by reason
    strangers:   requests of Lambdas that had ended, or that were invoked twice
    failures:    failed invocations, by kind
    """

    invocations: int = 0
    delivered: int = 0
    relaunched: int = 0
    retried: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    strangers: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)

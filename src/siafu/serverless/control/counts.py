"""Counts: what a controller saw, for the run's summary and for tests."""

from collections import Counter
from dataclasses import dataclass, field

from siafu.serverless.control.failure import FailureKind
from siafu.serverless.control.instructions import Reason


@dataclass(slots=True)
class Counts:
    """What a controller saw.

    invocations: Lambdas asked for
    delivered:   tasks that have their result
    relaunched:  tasks given to another Lambda because one was late
    retried:     tasks given to another because one ended, gave it back, or brought garbage
    dropped:     results thrown away, by reason
    strangers:   asks of Lambdas that had ended, or that were invoked twice
    failures:    invocations that came to nothing, by kind
    """

    invocations: int = 0
    delivered: int = 0
    relaunched: int = 0
    retried: int = 0
    dropped: Counter[Reason] = field(default_factory=Counter)
    strangers: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)

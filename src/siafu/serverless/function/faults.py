"""Faults on purpose: which fault strikes which invocation, drawn from a seed."""

import json
import random
from dataclasses import asdict, dataclass
from enum import Enum

from siafu.base.errors import BadInput


class FaultKind(Enum):
    """Kinds of faults of a local Lambda; its handler knows nothing of them.

    All strike from outside, but for GARBLE: that one is in the Lambda's connection (`garbled_link`).
    """

    KILL = "kill"  # SIGKILL while it runs
    HANG = "hang"  # stopped while it runs and never continued: it times out or is cancelled
    SLOW = "slow"  # stopped for a while
    ERROR = "error"  # its payload is not JSON: the runtime client answers with an error
    DUPLICATE = "duplicate"  # run twice, at once
    GARBAGE = "garbage"  # its receipt is random bytes
    GARBLE = "garble"  # of the rows and gradients that it sends to the graph server, a message is not what it should be


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: strikes `after` seconds from the hand-over; a slow one lasts `lasting` seconds."""

    kind: FaultKind
    after: float
    lasting: float


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults of invocations: a pure function of the seed and the invocation's number.

    kill … garble: the share of invocations, 0 to 1; together at most 1
    window:       seconds from the hand-over within which a fault strikes
    slow_seconds: how long a slow one stands still
    """

    seed: int
    kill: float = 0.0
    hang: float = 0.0
    slow: float = 0.0
    error: float = 0.0
    duplicate: float = 0.0
    garbage: float = 0.0
    garble: float = 0.0
    window: float = 0.2
    slow_seconds: float = 1.0

    def __post_init__(self) -> None:
        shares = [self.share(kind) for kind in FaultKind]
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise BadInput(f"shares of faults are {shares}: give each from 0 to 1, together at most 1")

    @classmethod
    def of(cls, text: str) -> "FaultPlan":
        """The plan whose `text` this is."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise BadInput(f"a plan of faults that is none: {text[:100]!r}") from error

    def text(self) -> str:
        """The plan as one line, for a Lambda's environment."""
        return json.dumps(asdict(self))

    def share(self, kind: FaultKind) -> float:
        """The share of invocations that this kind strikes."""
        share: float = getattr(self, kind.value)
        return share

    def fault(self, number: int) -> Fault | None:
        """The fault that strikes invocation `number`; None: none does."""
        dice = random.Random(f"siafu fault {self.seed} {number}")
        drawn, after = dice.random(), dice.random() * self.window
        for kind in FaultKind:
            drawn -= self.share(kind)
            if drawn < 0:
                return Fault(kind, after, self.slow_seconds)
        return None

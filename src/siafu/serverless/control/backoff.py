"""Backoff: how long to wait before invoking again after a setback."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from siafu.serverless.control.ids import Seconds

Jitter = Callable[[int], float]
"""A number in [0, 1) for the n-th wait: not the same for two controllers, so that they do not come back as one."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double up to a limit, each between half and all of what its turn allows.

    jitter: which part of the upper half
    """

    first: Seconds
    limit: Seconds
    jitter: Jitter

    def wait(self, setbacks: int, number: int) -> Seconds:
        """Seconds to wait after so many setbacks in a row; `number` counts all waits."""
        whole = min(self.limit, self.first * 2.0 ** min(setbacks - 1, 60))
        return whole * (1.0 + self.jitter(number)) / 2.0


def hashed_jitter(name: str) -> Jitter:
    """Jitter by a hash of the name (a run's and a graph server's): the same sequence for the same name."""

    def draw(number: int) -> float:
        digest = blake2b(f"{name}/{number}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") / 2**32

    return draw

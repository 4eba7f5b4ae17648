"""Meter: what the Lambdas of a run used, and what that costs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from siafu.cost.lambda_prices import LambdaPrices

_MB_MS_PER_GB_SECOND = 1024 * 1000
_OF_PRICES = ("region", "architecture", "as_of", "source")


@dataclass(slots=True)
class KindUsage:
    """Tasks of one kind whose results counted; the others are in the bill alone.

    bytes_received: by Lambdas, all inputs but the weights, of which a Lambda asks for a version once
    bytes_sent:     by Lambdas, rows and gradients
    """

    tasks: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0

    def add(self, other: "KindUsage") -> None:
        self.tasks += other.tasks
        self.bytes_received += other.bytes_received
        self.bytes_sent += other.bytes_sent


class Meter:
    """Counts in whole milliseconds and megabytes, so that sums are exact in any order.

    requests:  invocations that are charged
    refused:   invocations that never began, and are not
    """

    def __init__(self, prices: LambdaPrices) -> None:
        self.requests = 0
        self.refused = 0
        self.billed_ms = 0
        self.kinds: dict[str, KindUsage] = {}
        self._prices = prices
        self._mb_ms = 0

    def count_invocation(self, billed_ms: int, memory_mb: int) -> None:
        """An invocation has ended: what the platform bills for it, and the memory it was given.

        Of one whose end was not told, give the longest that it can have run.
        """
        if billed_ms < 0 or memory_mb <= 0:
            raise ValueError(f"an invocation of {billed_ms} ms with {memory_mb} MB cannot be")
        self.requests += 1
        self.billed_ms += billed_ms
        self._mb_ms += billed_ms * memory_mb

    def count_refusal(self) -> None:
        """An invocation never began: throttled, denied, or no such function."""
        self.refused += 1

    def count_task(self, kind: str, bytes_received: int, bytes_sent: int) -> None:
        """A Lambda brought a result that counts."""
        if bytes_received < 0 or bytes_sent < 0:
            raise ValueError(f"a task that received {bytes_received} bytes and sent {bytes_sent} cannot be")
        self.kinds.setdefault(kind, KindUsage()).add(KindUsage(1, bytes_received, bytes_sent))

    def add(self, other: "Meter") -> None:
        """Add the use of another graph server's Lambdas."""
        self.requests += other.requests
        self.refused += other.refused
        self.billed_ms += other.billed_ms
        self._mb_ms += other._mb_ms
        for kind, usage in other.kinds.items():
            self.kinds.setdefault(kind, KindUsage()).add(usage)

    @property
    def gb_seconds(self) -> float:
        return self._mb_ms / _MB_MS_PER_GB_SECOND

    @property
    def usd(self) -> float:
        """Dollars of the Lambdas; servers, storage and traffic between zones are not in it."""
        return self._prices.usd(self.gb_seconds, self.requests)

    def summary(self) -> Mapping[str, Any]:
        """The use of Lambdas, as JSON has it, for the run's summary."""
        return {
            "requests": self.requests,
            "refused": self.refused,
            "billed_ms": self.billed_ms,
            "billed_gb_seconds": self.gb_seconds,
            "usd": self.usd,
            "prices": {name: getattr(self._prices, name) for name in _OF_PRICES},
            "kinds": {kind: asdict(usage) for kind, usage in sorted(dict(self.kinds).items())},
        }

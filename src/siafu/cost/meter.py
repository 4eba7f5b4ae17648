"""Meter: what the Lambdas of a run used, and what that costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from siafu.cost.lambda_prices import LambdaPrices

_MB_MS_PER_GB_SECOND = 1024 * 1000


@dataclass(slots=True)
class KindUsage:
    """What the tasks of one kind took, as far as their results counted: what was done in vain is in the bill alone.

    bytes_received: by Lambdas, all inputs but the weights, of which a Lambda asks for a version once
    bytes_sent:     by Lambdas, rows and gradients
    """

    tasks: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0


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
        usage = self.kinds.setdefault(kind, KindUsage())
        usage.tasks += 1
        usage.bytes_received += bytes_received
        usage.bytes_sent += bytes_sent

    def add(self, other: "Meter") -> None:
        """What another graph server's Lambdas used."""
        self.requests += other.requests
        self.refused += other.refused
        self.billed_ms += other.billed_ms
        self._mb_ms += other._mb_ms
        for kind, usage in other.kinds.items():
            mine = self.kinds.setdefault(kind, KindUsage())
            mine.tasks += usage.tasks
            mine.bytes_received += usage.bytes_received
            mine.bytes_sent += usage.bytes_sent

    @property
    def gb_seconds(self) -> float:
        return self._mb_ms / _MB_MS_PER_GB_SECOND

    @property
    def usd(self) -> float:
        """What the Lambdas cost; servers, storage and traffic between zones are not in it."""
        return self._prices.usd(self.gb_seconds, self.requests)

    def summary(self) -> Mapping[str, Any]:
        """For the run's summary, as JSON has it."""
        return {
            "requests": self.requests,
            "refused": self.refused,
            "billed_ms": self.billed_ms,
            "billed_gb_seconds": self.gb_seconds,
            "usd": self.usd,
            "prices": {
                "region": self._prices.region,
                "architecture": self._prices.architecture,
                "as_of": self._prices.as_of,
                "source": self._prices.source,
            },
            "kinds": {
                kind: {
                    "tasks": usage.tasks,
                    "bytes_received": usage.bytes_received,
                    "bytes_sent": usage.bytes_sent,
                }
                for kind, usage in sorted(dict(self.kinds).items())
            },
        }

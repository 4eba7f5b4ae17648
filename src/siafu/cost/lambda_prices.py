"""LambdaPrices: what a platform asks for serverless threads, and where and of when that is known."""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

from siafu.base.errors import BadInput

VCPU_MB = 1769
"""Memory with which a Lambda has the time of one processor: AWS Lambda Developer Guide."""

Architecture = Literal["x86_64", "arm64"]


@dataclass(frozen=True, slots=True)
class Discount:
    """Price of a GB-second once a month has had so many."""

    above_gb_seconds: float
    usd_per_gb_second: float


@dataclass(frozen=True, slots=True)
class LambdaPrices:
    """On demand, without a free tier.

    usd_per_gb_second:        of memory given to a Lambda, whether or not it uses it; a GB is 1,024 MB
    usd_per_million_requests: invocations that were begun; those refused for now (429) are not charged
    as_of, source:            the month that the prices are of, and where they were taken from
    discounts:                by volume, the smallest volume first
    """

    region: str
    architecture: Architecture
    usd_per_gb_second: float
    usd_per_million_requests: float
    as_of: str
    source: str
    discounts: tuple[Discount, ...] = ()

    def __post_init__(self) -> None:
        asked = [
            self.usd_per_gb_second,
            self.usd_per_million_requests,
            *(each.usd_per_gb_second for each in self.discounts),
        ]
        if not all(price >= 0 for price in asked):
            raise BadInput(
                f"Lambda prices of {self.usd_per_gb_second} USD a GB-second and {self.usd_per_million_requests} USD a "
                "million requests: give numbers of at least 0"
            )
        volumes = [0.0, *(each.above_gb_seconds for each in self.discounts)]
        if not all(less < more for less, more in itertools.pairwise(volumes)):
            raise BadInput(
                f"Lambda discounts above {volumes[1:]} GB-seconds: give volumes above 0 that ascend"
            )

    def usd(self, gb_seconds: float, requests: int, *, before: float = 0.0) -> float:
        """Dollars of this use.

        before: GB-seconds that the month has had already; they decide which discounts hold
        """
        starts = [0.0, *(each.above_gb_seconds for each in self.discounts), math.inf]
        each = [self.usd_per_gb_second, *(tier.usd_per_gb_second for tier in self.discounts)]
        computing = sum(
            price * max(0.0, min(before + gb_seconds, last) - max(before, first))
            for price, (first, last) in zip(each, itertools.pairwise(starts), strict=True)
        )
        return computing + requests / 1e6 * self.usd_per_million_requests

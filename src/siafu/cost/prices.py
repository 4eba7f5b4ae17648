"""LambdaPrices: what a platform asks for serverless threads, and where and of when that is known."""

from dataclasses import dataclass
from typing import Literal

from siafu.errors import BadInput

Architecture = Literal["x86_64", "arm64"]


@dataclass(frozen=True, slots=True)
class LambdaPrices:
    """On demand, without a free tier and without the discount that begins at billions of GB-seconds a month.

    usd_per_gb_second:        of memory given to a Lambda, whether or not it uses it; a GB is 1,024 MB
    usd_per_million_requests: invocations that were begun; those refused for now (429) are not charged
    as_of, source:            the month that the prices are of, and where they were taken from
    """

    region: str
    architecture: Architecture
    usd_per_gb_second: float
    usd_per_million_requests: float
    as_of: str
    source: str

    def __post_init__(self) -> None:
        if not (self.usd_per_gb_second >= 0 and self.usd_per_million_requests >= 0):
            raise BadInput(
                f"Lambda prices of {self.usd_per_gb_second} USD a GB-second and {self.usd_per_million_requests} USD a "
                "million requests: give numbers of at least 0"
            )


_SOURCE = "this project's sheet of AWS's on-demand list prices"

PRICES = (
    LambdaPrices("us-east-1", "x86_64", 0.0000166667, 0.20, "2026-08", _SOURCE),
    LambdaPrices("us-east-1", "arm64", 0.0000133334, 0.20, "2026-08", _SOURCE),
)


def lambda_prices(region: str, architecture: Architecture) -> LambdaPrices:
    """Those we know. Of another region, say the prices yourself."""
    for each in PRICES:
        if (each.region, each.architecture) == (region, architecture):
            return each
    known = ", ".join(f"{each.region} {each.architecture}" for each in PRICES)
    raise BadInput(
        f"no Lambda prices for {region} {architecture} (known: {known}): give `LambdaPrices` of your own"
    )

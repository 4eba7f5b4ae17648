"""bill: what a run's Lambdas did and what that costs, in a line for people."""

from collections.abc import Mapping
from typing import Any


def bill(used: Mapping[str, Any], *, paid: bool) -> str:
    """One line.

    used: what a run's summary says under "lambda"
    paid: whether they ran where they cost something
    """
    prices, again = used["prices"], used["relaunched"] + used["retried"]
    return (
        f"Lambdas: {used['invocations']:,} invocations, {used['billed_gb_seconds']:,.1f} GB-seconds"
        + (f", {again:,} tasks done again" if again else "")
        + f"; {'they cost' if paid else 'on AWS they would cost'} ${used['usd']:,.6f} "
        f"(list prices, {prices['region']} {prices['architecture']}, {prices['as_of']})"
    )

"""Money as people read it."""

import math


def dollars(usd: float) -> str:
    """In cents, and below ten of them with two digits that count: $12.30, $0.10, $0.0042, $0.000017."""
    if usd == 0 or abs(usd) >= 0.1:
        return f"${usd:,.2f}"
    return f"${usd:.{1 - math.floor(math.log10(abs(usd)))}f}"

"""Times as people write them."""

import re

from siafu.base.errors import BadInput

_UNITS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "": 1.0}
_PART = re.compile(r"([0-9]*\.?[0-9]+)\s*(d|h|min|m|s|)\s*")


def seconds_in(text: str) -> float:
    """Seconds in '90', '90s', '15m', '1h', '1h30m' or '2d'."""
    at, total = 0, 0.0
    stripped = text.strip().lower()
    while at < len(stripped):
        part = _PART.match(stripped, at)
        if part is None:
            break
        total, at = total + float(part[1]) * _UNITS[part[2]], part.end()
    if not stripped or at < len(stripped):
        raise BadInput(f"{text!r} is not a time: write it like 90s, 15m, 1h30m or 2d")
    return total

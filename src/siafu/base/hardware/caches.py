"""The processor's caches."""

import re
from functools import cache
from pathlib import Path

_TYPICAL = {2: 1 << 20, 3: 32 << 20}  # bytes, where the system does not say


@cache
def cache_bytes(level: int) -> int:
    """The size of the cache of a level: 2 is a core's own, 3 is shared."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size").read_text()
    except OSError:
        return _TYPICAL[level]
    match = re.fullmatch(r"(\d+)([KM]?)\s*", text)
    if match is None:
        return _TYPICAL[level]
    return int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]]

"""The processor's caches."""

import os
import re
from functools import cache
from pathlib import Path

_TYPICAL = {2: 1 << 20, 3: 32 << 20}  # bytes, where the system does not say
_CORES_SHARE = 16 << 20  # of a shared cache, on a processor whose other cores are busy, too


@cache
def cache_bytes(level: int) -> int:
    """The bytes of the cache of a level that this machine can use: 2 is a core's own, 3 is shared by its cores."""
    told = _told(Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size"))
    found = _TYPICAL[level] if told is None else told
    return usable_bytes(found, os.cpu_count() or 1) if level == 3 else found


def usable_bytes(shared: int, cores: int) -> int:
    """Bytes that so many cores can count on of a shared cache of this size.

    A virtual machine is told the size of the whole processor's cache, of which dozens of cores of others take their shares.
    """
    return min(shared, cores * _CORES_SHARE)


def _told(file: Path) -> int | None:
    """A cache's size as the system writes it ("32768K"); None: it does not."""
    try:
        match = re.fullmatch(r"(\d+)([KM]?)\s*", file.read_text())
    except OSError:
        return None
    return None if match is None else int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]]

"""Disks: those that machines have, and volumes that are rented beside them by size and throughput."""

import math
from dataclasses import dataclass

from siafu.cost.instances import Instance

_HOURS_PER_MONTH = 730  # as AWS reckons
_GB, _MB = 1e9, 1e6
LOCAL = "local NVMe"


@dataclass(frozen=True, slots=True)
class Volume:
    """A kind of volume.

    included_mb_s: megabytes a second, read and written together, that its size pays for; most_mb_s: that can be had
    usd_per_mb_s_month: for each megabyte a second above those
    most_gb:       of one volume
    """

    name: str
    usd_per_gb_month: float
    included_mb_s: float
    usd_per_mb_s_month: float
    most_mb_s: float
    most_gb: float
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a machine that scratch files lie on.

    name: "local NVMe", or that of a volume
    bytes: that it has, or can have
    read_bytes_s, write_bytes_s: that it moves in a second, at any time
    usd_per_gb_h, usd_h: dollars an hour for each gigabyte that is used, and besides; nothing for what comes with the machine
    """

    name: str
    bytes: int
    read_bytes_s: float
    write_bytes_s: float
    usd_per_gb_h: float = 0.0
    usd_h: float = 0.0

    def usd_per_hour(self, size: int) -> float:
        """Dollars an hour for scratch files of that size."""
        return self.usd_h + math.ceil(size / _GB) * self.usd_per_gb_h


def local_disk(instance: Instance) -> Disk | None:
    """The one that comes with a machine; None: it has none, or how fast it is is not known."""
    size, read, write = instance.disk_gb, instance.disk_read_mb_s, instance.disk_write_mb_s
    if size is None or read is None or write is None:
        return None
    return Disk(LOCAL, int(size * _GB), read * _MB, write * _MB)


def volume_disk(instance: Instance, volume: Volume) -> Disk:
    """A volume as fast as the machine's link to volumes; where that is not known, as fast as its size pays for."""
    link = instance.volume_mb_s
    rate = volume.included_mb_s if link is None else min(link, volume.most_mb_s)
    above = max(0.0, rate - volume.included_mb_s)
    # What is read and what is written share the rate.
    return Disk(
        volume.name,
        int(volume.most_gb * _GB),
        rate * _MB,
        rate * _MB,
        volume.usd_per_gb_month / _HOURS_PER_MONTH,
        above * volume.usd_per_mb_s_month / _HOURS_PER_MONTH,
    )

"""ScratchMeter: what a training moves from and to its scratch files, in all and an epoch."""

from typing import Any

from siafu.tables import DiskTraffic


class ScratchMeter:
    """Counts of one session; zeros where no table is on disk."""

    def __init__(self) -> None:
        self._traffic: DiskTraffic | None = None
        self._before = self.counts()

    def watch(self, traffic: DiskTraffic | None) -> None:
        """Count what `traffic` counts; None: no table is on disk."""
        self._traffic = traffic

    def counts(self) -> dict[str, Any]:
        """Bytes read and written, and how long the disk was busy and computing waited, since the session began."""
        traffic = self._traffic or DiskTraffic()
        return {
            "bytes_read": traffic.bytes_read,
            "bytes_written": traffic.bytes_written,
            "disk_busy_seconds": traffic.seconds_busy,
            "disk_wait_seconds": traffic.seconds_waited,
        }

    def since_last(self) -> dict[str, Any]:
        """The same since this was last asked; empty where no table is on disk."""
        if self._traffic is None:
            return {}
        now, before = self.counts(), self._before
        self._before = now
        return {name: value - before[name] for name, value in now.items()}

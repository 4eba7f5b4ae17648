"""DiskTraffic: bytes that a run's scratch files moved, and for how long."""

from threading import Lock


class DiskTraffic:
    """Counts what any thread moves.

    bytes_read, bytes_written:     whole pages, as the disk moved them
    seconds_reading, -_writing: time inside the system's calls, summed over threads
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.bytes_read = self.bytes_written = 0
        self.seconds_reading = self.seconds_writing = 0.0

    def read(self, size: int, seconds: float) -> None:
        """Count bytes that were read."""
        with self._lock:
            self.bytes_read += size
            self.seconds_reading += seconds

    def wrote(self, size: int, seconds: float) -> None:
        """Count bytes that were written."""
        with self._lock:
            self.bytes_written += size
            self.seconds_writing += seconds

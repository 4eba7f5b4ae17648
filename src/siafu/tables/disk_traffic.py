"""DiskTraffic: bytes that a run's scratch files moved, how long the disk was busy, and how long computing waited for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from siafu.base.threads import thread_count


class DiskTraffic:
    """Counts what any thread moves, and waits for.

    bytes_read, bytes_written:  whole pages, as the disk moved them
    seconds_reading, -_writing: time inside the system's calls, summed over threads
    seconds_busy:               time in which at least one such call was under way
    seconds_waited:             time for which computing waited: one of n threads that waits counts an n-th
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls, self._since = 0, 0.0
        self._drained: dict[str, float] = {}
        self.bytes_read = self.bytes_written = 0
        self.seconds_reading = self.seconds_writing = 0.0
        self.seconds_busy = self.seconds_waited = 0.0

    def counts(self) -> dict[str, float]:
        """Bytes and seconds so far, as a run tells them."""
        with self._lock:
            return {
                "bytes_read": self.bytes_read,
                "bytes_written": self.bytes_written,
                "disk_busy_seconds": self.seconds_busy,
                "disk_wait_seconds": self.seconds_waited,
            }

    def drain(self) -> dict[str, float]:
        """The same, since it was last asked for."""
        now, before = self.counts(), self._drained
        self._drained = now
        return {name: value - before.get(name, 0) for name, value in now.items()}

    @contextmanager
    def reading(self, size: int) -> Iterator[None]:
        """Count bytes that are read, and the time that it takes."""
        began = self._begin()
        try:
            yield
        finally:
            with self._lock:
                self.bytes_read += size
                self.seconds_reading += self._end(began)

    @contextmanager
    def writing(self, size: int) -> Iterator[None]:
        """Count bytes that are written, and the time that it takes."""
        began = self._begin()
        try:
            yield
        finally:
            with self._lock:
                self.bytes_written += size
                self.seconds_writing += self._end(began)

    @contextmanager
    def waiting(self, *, all_threads: bool = False) -> Iterator[None]:
        """Count the time of the block as waiting; all_threads: what the others do next depends on it, too."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            with self._lock:
                self.seconds_waited += seconds if all_threads else seconds / thread_count()

    def _begin(self) -> float:
        now = time.perf_counter()
        with self._lock:
            if self._calls == 0:
                self._since = now
            self._calls += 1
        return now

    def _end(self, began: float) -> float:
        """Seconds since a call began; the lock is held."""
        now = time.perf_counter()
        self._calls -= 1
        if self._calls == 0:
            self.seconds_busy += now - self._since
        return now - began

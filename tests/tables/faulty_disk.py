"""A disk that fails: the system's calls with errors, short reads and short writes."""

import errno
import os
from collections.abc import Sequence
from threading import Lock

from siafu.tables.page_file import SystemCalls


class FaultyDisk(SystemCalls):
    """Counts calls; from the call `fails_at` on each one of its kind raises `error`.

    kind:  "read", "write" or "reserve"
    short: moves at most so many bytes a call; None: all
    """

    def __init__(
        self, *, kind: str = "", error: int = errno.EIO, fails_at: int = 0, short: int | None = None
    ) -> None:
        self._kind, self._error, self._fails_at, self._short = kind, error, fails_at, short
        self.calls = {"read": 0, "write": 0, "reserve": 0}
        self._lock = Lock()

    def _count(self, kind: str) -> None:
        with self._lock:
            self.calls[kind] += 1
            fails = kind == self._kind and self.calls[kind] > self._fails_at
        if fails:
            raise OSError(self._error, os.strerror(self._error))

    def reserve(self, file: int, size: int) -> None:
        self._count("reserve")
        super().reserve(file, size)

    def read(self, file: int, into: memoryview, at: int) -> int:
        self._count("read")
        return super().read(file, into[: self._short], at)

    def write(self, file: int, parts: Sequence[memoryview], at: int) -> int:
        self._count("write")
        if self._short is None:
            return super().write(file, parts, at)
        return super().write(file, [parts[0][: self._short]], at)

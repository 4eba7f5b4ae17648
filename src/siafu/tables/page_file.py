"""PageFile: a scratch file that is read and written in whole pages, past the system's cache where that can be."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Protocol, TypeVar

from siafu.base.errors import NoSpace, SiafuError
from siafu.tables.disk_traffic import DiskTraffic
from siafu.tables.pages import PAGE, Bytes, whole_pages

_AT_ONCE = 16 << 20  # bytes of one call to the system
_BUFFERS_AT_ONCE = 512  # that one call takes; systems allow 1,024
_PART = 4 << 20  # bytes of a large read that one thread asks for
_AT_A_TIME = 4  # parts; one alone leaves a fast disk idle between calls
_FULL = (errno.ENOSPC, errno.EDQUOT)

_Data = TypeVar("_Data")


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="siafu-disk")


# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=_readers.cache_clear)


class DiskCalls(Protocol):
    """The system's calls; tests give others, which fail."""

    def reserve(self, file: int, size: int) -> None: ...
    def read(self, file: int, into: memoryview, at: int) -> int: ...
    def write(self, file: int, parts: Sequence[memoryview], at: int) -> int: ...


class SystemCalls:
    """Those of this system."""

    def reserve(self, file: int, size: int) -> None:
        os.posix_fallocate(file, 0, size)

    def read(self, file: int, into: memoryview, at: int) -> int:
        return os.preadv(file, [into], at)

    def write(self, file: int, parts: Sequence[memoryview], at: int) -> int:
        return os.pwritev(file, parts, at)


class PageFile:
    """A file without a name, of a size that is reserved when it is made; zeros until it is written.

    Any thread may read and write. Buffers begin on pages, and so do places in the file.
    """

    def __init__(
        self, file: IO[bytes], directory: Path, size: int, traffic: DiskTraffic, calls: DiskCalls
    ) -> None:
        self._file, self._directory, self._traffic, self._calls = file, directory, traffic, calls
        self.size = whole_pages(size)
        if self.size:
            with self._told("reserve"):
                calls.reserve(file.fileno(), self.size)
        self.direct = _set_direct(file.fileno(), on=True)

    def read_into(self, buffer: Bytes, at: int) -> None:
        """Fill a buffer of whole pages with those from `at` on; of a large one several parts at a time, as disks want it."""
        self._check(len(buffer), at)
        with self._traffic.reading(len(buffer)):
            if len(buffer) <= _PART:
                self._read(buffer, at)
                return
            parts = [
                _readers().submit(self._read, buffer[first : first + _PART], at + first)
                for first in range(0, len(buffer), _PART)
            ]
            wait(parts)  # also after an error: others still fill the buffer
            for part in parts:
                part.result()

    def write(self, buffer: Bytes, at: int) -> None:
        """Write whole pages to `at`."""
        self.write_all([buffer], at)

    def write_all(self, buffers: Sequence[Bytes], at: int) -> None:
        """Write buffers of whole pages one after the other to `at`, together: disks want few large requests."""
        size = sum(map(len, buffers))
        self._check(size, at, *map(len, buffers))
        left = [each.data for each in buffers if len(each)]
        with self._traffic.writing(size):
            while left:
                parts = _first_of(left)
                moved = self._move("write", self._calls.write, parts, sum(map(len, parts)), at)
                left, at = _without_first(left, moved), at + moved

    def close(self) -> None:
        """Give the space back now."""
        self._file.close()

    def _check(self, size: int, at: int, *parts: int) -> None:
        if any(each % PAGE for each in (at, size, *parts)) or at + size > self.size:
            raise ValueError(f"{size} bytes at {at} are not whole pages of {self.size} bytes")

    def _read(self, buffer: Bytes, at: int) -> None:
        data, done = buffer.data, 0
        while done < len(data):
            part = data[done : done + _AT_ONCE]
            done += self._move("read", self._calls.read, part, len(part), at + done)

    def _move(
        self, what: str, call: Callable[[int, _Data, int], int], data: _Data, size: int, at: int
    ) -> int:
        """Bytes that a call moved of so many, whole pages if there are more to come."""
        with self._told(what):
            moved = self._call(call, data, at)
        if moved == 0:
            raise SiafuError(f"a scratch file in {self._directory} ends too early: check its disk")
        if moved < size and self.direct:
            # A call that was cut short goes on at a page, which direct I/O asks for.
            self.direct = moved >= PAGE or not _set_direct(self._file.fileno(), on=False)
            moved = moved // PAGE * PAGE
        return moved

    def _call(self, call: Callable[[int, _Data, int], int], data: _Data, at: int) -> int:
        try:
            return call(self._file.fileno(), data, at)
        except OSError as error:
            if error.errno != errno.EINVAL or not self.direct:
                raise
            # This file system takes the flag and then refuses to go by it.
            self.direct = not _set_direct(self._file.fileno(), on=False)
            return call(self._file.fileno(), data, at)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn the system's errors into one clear line each."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise NoSpace(
                    f"no space left for scratch files in {self._directory}: free some, or choose another --scratch"
                ) from error
            if error.errno == errno.EFBIG:
                raise NoSpace(
                    f"a scratch file in {self._directory} is larger than a file may be here: raise your limit (ulimit -f), "
                    "or choose another --scratch"
                ) from error
            raise SiafuError(
                f"cannot {what} a scratch file in {self._directory} ({error.strerror}): "
                "check its disk, or choose another --scratch"
            ) from error


def _first_of(buffers: Sequence[memoryview]) -> list[memoryview]:
    """As much as one call takes."""
    found, room = [], _AT_ONCE
    for each in buffers[:_BUFFERS_AT_ONCE]:
        found.append(each[:room])
        room -= len(found[-1])
        if not room:
            break
    return found


def _without_first(buffers: Sequence[memoryview], size: int) -> list[memoryview]:
    """Buffers but for their first bytes, so many."""
    for k, each in enumerate(buffers):
        if size < len(each):
            return [each[size:], *buffers[k + 1 :]]
        size -= len(each)
    return []


def _set_direct(file: int, *, on: bool) -> bool:
    """Whether the file is read and written past the system's cache from now on, as asked for."""
    if not hasattr(os, "O_DIRECT"):
        return not on
    with suppress(OSError):
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
        return True
    return False

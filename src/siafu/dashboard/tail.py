"""Tail: lines added to a file since the last look, even if the file was cut or replaced meanwhile."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 18
_LINE_BYTES = 1 << 16  # a longer line is none of ours, and is passed over
_REMEMBERED_BYTES = 1 << 10  # by which a file that was cut back and written on is known to be another


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file to read; gives its descriptor and status. A pipe, which could block, and a link are an OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a file")
        yield file, found
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class Added:
    """Lines that were added to a file.

    restarted: the file is not the one that was read before: forget its lines, these begin anew
    lines:     whole ones, without their line feeds
    more:      there is more to read at once
    size:      the file's, in bytes
    """

    restarted: bool
    lines: list[bytes]
    more: bool
    size: int


class Tail:
    """Reads a growing file from its beginning, a bounded piece at a time. Keeps no file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._forget()

    def read(self) -> Added:
        """The next whole lines; none while the last is being written, or while there is no file."""
        try:
            with open_plain(self._path) as (file, found):
                return self._read(file, found)
        except OSError:
            return self._absent()

    def _read(self, file: int, found: os.stat_result) -> Added:
        identity = (found.st_dev, found.st_ino)
        restarted = identity != self._identity or found.st_size < self._offset or not self._goes_on(file)
        if restarted:
            self._identity = identity
            self._forget()
        data = os.pread(file, _CHUNK_BYTES, self._offset)
        more = len(data) == _CHUNK_BYTES
        whole = data.rfind(b"\n") + 1
        if whole == 0 and len(data) > _LINE_BYTES:
            self._advance(data)
            self._passing_over = True
            return Added(restarted, [], more, found.st_size)
        self._advance(data[:whole])
        lines = data[:whole].split(b"\n")[:-1]
        if self._passing_over and lines:
            lines = lines[1:]
            self._passing_over = False
        return Added(restarted, [line for line in lines if len(line) <= _LINE_BYTES], more, found.st_size)

    def _advance(self, data: bytes) -> None:
        self._offset += len(data)
        if data:
            self._end = data[-_REMEMBERED_BYTES:]

    def _goes_on(self, file: int) -> bool:
        """Whether the last bytes read are still there: a file that was cut and written again may be as long as before."""
        return os.pread(file, len(self._end), self._offset - len(self._end)) == self._end

    def _absent(self) -> Added:
        restarted = self._identity is not None
        self._identity = None
        self._forget()
        return Added(restarted, [], False, 0)

    def _forget(self) -> None:
        self._offset = 0
        self._end = b""
        self._passing_over = False

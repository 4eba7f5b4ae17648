"""Tail: what was added to a file of lines since one last looked, though others cut and replace it meanwhile."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 18
_LINE_BYTES = 1 << 16  # a longer line is none of ours, and is passed over
_REMEMBERED_BYTES = 1 << 10  # by which a file that was cut back and written on is known to be another


@dataclass(frozen=True, slots=True)
class Added:
    """What a look at the file found.

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
        # A pipe or a link that somebody put there must neither hold us up nor lead us elsewhere.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self._path, flags)
        except OSError:
            return self._absent()
        try:
            return self._read(file)
        except OSError:
            return self._absent()
        finally:
            os.close(file)

    def _read(self, file: int) -> Added:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return self._absent()
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
        """Whether what was read last is still there: a file cut back and written on may be as long as before."""
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

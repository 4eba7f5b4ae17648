"""Turns of processes at compiling: while one compiles a kernel, others that want the same one wait, and then load it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from zlib import crc32

_FILE = "turns"


@contextmanager
def turn(directory: Path, name: str) -> Iterator[None]:
    """Hold the turn of `name` among all processes that share this directory. A process that is killed lets go of it.

    Names are bytes of one file, each with a lock of its own; two names with one byte merely wait for each other. Where files cannot be locked,
    and where waiting would never end, nobody waits.
    """
    file = _opened(directory, os.getpid())
    at = crc32(name.encode())
    if file is None or not _takes(file, at):
        yield
        return
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, at)


@cache
def _opened(directory: Path, process: int) -> int | None:
    """A file of locks; they belong to a process, and a forked one needs its own."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return os.open(directory / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _takes(file: int, at: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, at)
    except OSError:  # no locks on this file system, or two processes would wait for each other
        return False
    return True

"""Turns of processes at compiling: while one compiles a kernel, others that want the same one wait, and then load it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from zlib import crc32

_FILE = "turns"
_PATIENCE_SECONDS = 120.0  # several times what the slowest kernel takes to compile
_AGAIN_SECONDS = 0.01


@contextmanager
def turn(directory: Path, name: str) -> Iterator[None]:
    """Hold the turn of `name` among all processes that share this directory. A process that is killed lets go of it.

    Names are bytes of one file, each with a lock of its own; two names with one byte merely wait for each other. Where files cannot be locked,
    nobody waits, and nobody waits for ever for a process that hangs. Who waits must hold nothing that a holder of a turn may wait for.
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
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):  # another has it: which of the two is up to the system
            time.sleep(_AGAIN_SECONDS)
        except OSError:  # no locks on this file system
            return False
        else:
            return True
    return False

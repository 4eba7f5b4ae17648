"""The lock of a run's directory: the process that trains there holds a lock on its metrics, and anyone may ask whether one does."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from siafu.base.errors import BadInput

# Whoever asks `is_held` holds the file for a moment: a training that starts in that moment tries again.
_TRIES = 20
_PAUSE_SECONDS = 0.025


def take(file: int, directory: Path) -> None:
    """Be the one that trains in `directory`, for as long as `file` is open."""
    for left in reversed(range(_TRIES)):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if left:
            time.sleep(_PAUSE_SECONDS)
    raise BadInput(f"another process is training in {directory}: wait for it, or choose another --out")


def is_held(path: Path) -> bool:
    """Whether a process trains with the metrics at `path`; it need not be of this machine, if their disk knows locks."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks: nobody can hold one
        return False
    finally:
        os.close(file)
    return False

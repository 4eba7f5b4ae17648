"""Memory that is freed and kept for what is allocated next, where the C library lets us ask for it."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # as <malloc.h> numbers them
_NEVER = 2**31 - 1
# What glibc comes to by itself, and the number of mappings that it begins with.
_KEPT, _MAPPED, _MAPPINGS = 64 << 20, 32 << 20, 65536

_lock = threading.Lock()
_entered = 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Within, memory that is freed stays with this process; afterwards what is free goes back to the system.

    By itself, glibc gives blocks above 32 MB back as soon as they are freed, and the system clears every page of the next. Where blocks
    of that size come and go all the time, this takes as long as computing what is written to them. Several threads may be within.
    """
    global _entered
    with _lock:
        if not _entered:
            _set((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
        _entered += 1
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if not _entered:
                _set((_MMAP_MAX, _MAPPINGS), (_MMAP_THRESHOLD, _MAPPED), (_TRIM_THRESHOLD, _KEPT))
                _give_back()


def _set(*values: tuple[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in values:
            mallopt(name, value)


def _give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))

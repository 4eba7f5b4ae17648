"""Memory in whole pages, as direct I/O wants it."""

import mmap
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

PAGE = 4096  # bytes: direct I/O moves whole ones

_HUGE_PAGE = 2 << 20

Bytes = NDArray[np.uint8]


def whole_pages(size: int) -> int:
    """`size` rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def page_buffer(size: int) -> Bytes:
    """At least `size` bytes of zeros that begin on a page; given back when nobody refers to them.

    In huge pages where the system has them, and a large buffer begins with one: kernels read rows at random, and a disk's request is made
    of few pieces. Shared mappings get none, so this one is private.
    """
    size = max(PAGE, whole_pages(size))
    spare = _HUGE_PAGE if size >= _HUGE_PAGE else 0  # addresses that are never touched take no memory
    memory = mmap.mmap(-1, size + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(memory, np.uint8)
    begin = -found.ctypes.data % _HUGE_PAGE if spare else 0
    return found[begin : begin + size]

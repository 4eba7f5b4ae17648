"""Memory in whole pages, as direct I/O wants it."""

import mmap
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

PAGE = 4096  # bytes: direct I/O moves whole ones

Bytes = NDArray[np.uint8]


def whole_pages(size: int) -> int:
    """`size` rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def page_buffer(size: int) -> Bytes:
    """At least `size` bytes of zeros that begin on a page; given back when nobody refers to them.

    In huge pages where the system has them: kernels read rows at random. Shared mappings get none, so this one is private.
    """
    memory = mmap.mmap(-1, max(PAGE, whole_pages(size)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)

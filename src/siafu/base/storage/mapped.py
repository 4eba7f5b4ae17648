"""Mapped arrays: made in scratch files, known by their pages, read before they are used."""

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.storage.files import disk_errors, scratch_file


def mapped_array(directory: Path, size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Zeros in a file without a name on the directory's disk, whose space is taken now.

    Its pages count as a file's: the system writes them back and drops them when memory is short.
    """
    if size == 0:
        return np.zeros(0, dtype)
    with disk_errors(directory), scratch_file(directory) as file:
        os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, mode="r+", shape=(size,)).view(np.ndarray)


def mapped_file(array: NDArray[Any] | None) -> np.memmap[Any, Any] | None:
    """The map of a file whose pages an array is; None: it is in memory."""
    while array is not None:
        if isinstance(array, np.memmap):
            return array
        base = array.base
        array = base if isinstance(base, np.ndarray) else None
    return None


def read_soon(rows: NDArray[Any]) -> None:
    """Have the system read the pages of mapped rows that will be used next, all at once; nothing for rows in memory."""
    file = mapped_file(rows)
    pages: mmap.mmap | None = None if file is None else getattr(file, "_mmap", None)
    if file is None or pages is None or not rows.size or not hasattr(pages, "madvise"):
        return
    begin = rows.ctypes.data - file.ctypes.data + file.offset % mmap.ALLOCATIONGRANULARITY
    start = begin // mmap.PAGESIZE * mmap.PAGESIZE
    with suppress(OSError, ValueError):  # it is a hint
        pages.madvise(mmap.MADV_WILLNEED, start, begin - start + rows.nbytes)

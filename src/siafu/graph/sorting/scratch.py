"""Arrays too large for memory, kept for a while in a file without a name."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.storage.files import disk_errors, scratch_file, write_at


class Scratch:
    """A file without a name for arrays, which are appended and read back; the system frees it when the process ends.

    One thread appends; any number may read what was appended before.
    """

    def __init__(self, directory: Path) -> None:
        self.size = 0
        self._directory = directory
        with disk_errors(directory):
            self._file = scratch_file(directory)

    def append(self, values: NDArray[Any]) -> int:
        """Add the array's bytes at the end; where they begin."""
        begin = self.size
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        with disk_errors(self._directory):
            write_at(self._file, data, begin)
        self.size += len(data)
        return begin

    def read_into(self, out: NDArray[Any], begin: int) -> None:
        """Fill a contiguous array with the bytes from `begin` on."""
        data = out.reshape(-1).view(np.uint8).data
        while len(data):
            count = os.preadv(self._file.fileno(), [data], begin)
            if count == 0:
                raise EOFError(f"scratch file ends before {begin + len(data)}")
            begin += count
            data = data[count:]

    def read(self, dtype: DTypeLike, count: int, begin: int) -> NDArray[Any]:
        """`count` items from `begin` on."""
        out = np.empty(count, dtype)
        self.read_into(out, begin)
        return out

    def close(self) -> None:
        """Give the space back now."""
        self._file.close()

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

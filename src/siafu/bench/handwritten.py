"""The C kernel that ours is measured against, where there is a compiler to build it with."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.storage.owned import OwnedDirectory
from siafu.kernels import over_rows

COLUMNS = 128  # what gather.c is written for


def c_gather(
    indptr: NDArray[np.int64], indices: NDArray[Any], rows: NDArray[np.float32], out: NDArray[np.float32]
) -> Callable[[], None] | None:
    """A call that gathers `rows` into `out` in C on every core; None without a C compiler or with wide ids."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or indices.dtype != np.int32:
        return None
    with OwnedDirectory() as directory:
        library = directory / "gather.so"
        source = Path(__file__).with_name("gather.c")
        built = subprocess.run(
            [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)],
            capture_output=True,
            check=False,
        )
        if built.returncode:
            return None
        function = ctypes.CDLL(str(library)).gather
    arrays = [ctypes.c_void_p(array.ctypes.data) for array in (indptr, indices, rows, out)]

    def part(first: int, last: int) -> None:
        function(*arrays, ctypes.c_int64(first), ctypes.c_int64(last))

    return lambda: over_rows(indptr, COLUMNS, part)

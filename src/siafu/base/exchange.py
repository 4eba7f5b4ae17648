"""Two names exchanged in one step, so that no moment shows neither: Linux's renameat2."""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

_HERE = -100  # AT_FDCWD: a relative path starts at the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE

# Said by systems, sandboxes and file systems that do not know the call or the flag.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM, errno.EXDEV}


def exchange(one: Path, other: Path) -> bool:
    """Give each the other's name; False: it cannot be done in one step here, and nothing was done."""
    rename = _renameat2()
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library that is older, or of another system
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    found.restype = ctypes.c_int
    rename: Callable[[int, bytes, int, bytes, int], int] = found
    return rename

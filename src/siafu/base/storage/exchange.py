"""Exchange of two names in one step, by Linux's renameat2: at no moment is one of them missing."""

import ctypes
import errno
import os
from pathlib import Path

_HERE = -100  # AT_FDCWD: a relative path starts at the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE

# Said by systems, sandboxes and file systems that do not know the call or the flag.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM, errno.EXDEV}


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names; False: the system cannot do it in one step, and nothing was done."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library that is older, or of another system
        return False
    rename.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(other))

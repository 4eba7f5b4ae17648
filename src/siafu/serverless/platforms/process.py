"""The process of a local Lambda: it dies with its parent, its memory has an end, else it is AWS's runtime client."""

import os
import resource
import signal
import sys
from contextlib import suppress

ADDRESS_SPACE = "SIAFU_LAMBDA_ADDRESS_SPACE"  # bytes that the process may map, used or not
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """`python -m siafu.serverless.platforms.process HANDLER`: what `python -m awslambdaric HANDLER` is, with limits."""
    _die_with_parent()
    if most := os.environ.pop(ADDRESS_SPACE, None):
        resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    from awslambdaric.__main__ import main as run

    run(sys.argv)


def _die_with_parent() -> None:
    """A stopped process would outlive a killed parent for ever. Linux only: elsewhere the next poll ends it."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)


if __name__ == "__main__":
    main()

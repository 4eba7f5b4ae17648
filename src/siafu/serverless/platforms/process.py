"""The process of a local Lambda: AWS's runtime client, with a memory limit, which ends with its parent."""

import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

ADDRESS_SPACE = "SIAFU_LAMBDA_ADDRESS_SPACE"  # bytes that the process may map, used or not
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """`python -m siafu.serverless.platforms.process HANDLER`: `python -m awslambdaric HANDLER` with limits."""
    _die_with_parent()
    if most := os.environ.pop(ADDRESS_SPACE, None):
        resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    _run(sys.argv[1], os.environ["AWS_LAMBDA_RUNTIME_API"])


def _run(handler: str, api: str) -> None:
    """AWS's client, at an address that ends in a secret path: its part in C takes it as it is, its part in Python does not."""
    from awslambdaric import bootstrap
    from awslambdaric.lambda_runtime_client import LambdaRuntimeClient

    host, _, secret = api.partition("/")

    class Client(LambdaRuntimeClient):  # type: ignore[misc]
        def call_rapid(self, method: str, endpoint: str, *arguments: Any) -> None:
            super().call_rapid(method, f"/{secret}{endpoint}", *arguments)

    bootstrap.run(handler, Client(host))


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

"""RayHead: checks that the head of a Ray cluster can be reached. Without it, Ray ends this process without a message."""

import socket
import time

from siafu.base.errors import SiafuError

GONE_SECONDS = 15.0
"""A head that nobody reaches for so long is gone."""

_KNOCK_SECONDS = 2.0
_ANSWER_SECONDS = 1.0


class RayHead:
    """Connects to the head now and then.

    address: host and port
    is_gone: the head cannot be reached: every call to Ray would wait
    """

    def __init__(self, address: str, gone_after: float = GONE_SECONDS) -> None:
        self.is_gone = False
        self._address, self._gone_after = address, gone_after
        self._seen = self._knocked = time.monotonic()

    def check(self) -> None:
        """Raise an error if the head is gone."""
        now = time.monotonic()
        if now - self._knocked < min(_KNOCK_SECONDS, self._gone_after):
            return
        self._knocked = now
        if self._answers():
            self._seen = now
        elif now - self._seen > self._gone_after:
            self.is_gone = True
            raise SiafuError(
                f"the head of the Ray cluster at {self._address} cannot be reached for {now - self._seen:.0f} s, and "
                "servers are started there: start the cluster again, and go on with --resume"
            )

    def _answers(self) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
        except OSError:
            return False
        return True

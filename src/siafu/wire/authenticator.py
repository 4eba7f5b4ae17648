"""Authenticator: tells ZeroMQ whether a peer may connect (ZAP, RFC 27).

A peer on another machine proves a key (CURVE). On a socket of this machine and user nothing is encrypted, and the peer sends
the secret of its key (PLAIN): no other user can listen there.
"""

import hmac
import threading

import zmq
from zmq.utils import z85

from siafu.wire.refusal import Refusals


class Authenticator:
    """Accepts peers with an admitted key. `admit` and `dismiss` may be called from any thread.

    It has no thread of its own: the thread that polls `socket` calls `answer`. One context has one authenticator.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", refusals: Refusals) -> None:
        self._refusals = refusals
        self._admitted: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def admit(self, key: str, secret: str | None = None) -> None:
        """Accept a peer that proves a public key, or sends the secret; None: a secret is no proof."""
        with self._lock:
            self._admitted[key] = secret

    def dismiss(self, key: str) -> None:
        """Refuse a key from now on, also on connections that it has."""
        with self._lock:
            self._admitted.pop(key, None)

    def knows(self, key: str) -> bool:
        return key in self._admitted

    def answer(self) -> None:
        """Answer one request of ZeroMQ's."""
        version, request, _domain, _address, _identity, mechanism, *credentials = self.socket.recv_multipart()
        key = self._proved(mechanism, credentials)
        if key is not None and self.knows(key):
            self.socket.send_multipart([version, request, b"200", b"OK", key.encode(), b""])
        else:
            self._refusals.add("key", "a peer whose key this run did not hand out")
            self.socket.send_multipart([version, request, b"400", b"unknown key", b"", b""])

    def _proved(self, mechanism: bytes, credentials: list[bytes]) -> str | None:
        """The key that a peer has proved; None: it has proved none."""
        if mechanism == b"CURVE" and credentials:
            return z85.encode(credentials[0]).decode()
        if mechanism == b"PLAIN" and len(credentials) == 2:
            key = credentials[0].decode(errors="replace")
            secret = self._admitted.get(key)
            if secret is not None and hmac.compare_digest(secret.encode(), credentials[1]):
                return key
        return None

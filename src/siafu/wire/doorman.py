"""Doorman: answers ZeroMQ's question whether a peer may come in (ZAP, RFC 27).

From elsewhere a peer has proved a key (CURVE). On a socket of this machine and user nothing is encrypted, and it says the secret
that goes with its key (PLAIN): no other user can listen there.
"""

import hmac
import threading

import zmq
from zmq.utils import z85

from siafu.wire.refusal import Refusals


class Doorman:
    """Lets in the keys that were admitted. `admit` and `dismiss` may be called from any thread.

    It has no thread of its own: who polls `socket` calls `answer`. One context has one doorman.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", refusals: Refusals) -> None:
        self._refusals = refusals
        self._admitted: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def admit(self, key: str, secret: str | None = None) -> None:
        """Let in who proves a public key, or says the secret; None: a secret is no proof."""
        with self._lock:
            self._admitted[key] = secret

    def dismiss(self, key: str) -> None:
        """From now on nothing is taken from that key, also through connections that it has."""
        with self._lock:
            self._admitted.pop(key, None)

    def knows(self, key: str) -> bool:
        return key in self._admitted

    def answer(self) -> None:
        """One question."""
        version, request, _domain, _address, _identity, mechanism, *credentials = self.socket.recv_multipart()
        key = self._proved(mechanism, credentials)
        if key is not None and self.knows(key):
            self.socket.send_multipart([version, request, b"200", b"OK", key.encode(), b""])
        else:
            self._refusals.add("key", "a peer whose key this run did not hand out")
            self.socket.send_multipart([version, request, b"400", b"unknown key", b"", b""])

    def _proved(self, mechanism: bytes, credentials: list[bytes]) -> str | None:
        """The key that a peer has shown to be its own; None: it has not."""
        if mechanism == b"CURVE" and credentials:
            return z85.encode(credentials[0]).decode()
        if mechanism == b"PLAIN" and len(credentials) == 2:
            key = credentials[0].decode(errors="replace")
            secret = self._admitted.get(key)
            if secret is not None and hmac.compare_digest(secret.encode(), credentials[1]):
                return key
        return None

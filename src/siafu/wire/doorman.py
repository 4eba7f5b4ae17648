"""Doorman: answers ZeroMQ's question whether a peer that has proved a key may come in (ZAP, RFC 27)."""

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
        self._admitted: set[str] = set()
        self._lock = threading.Lock()
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def admit(self, key: str) -> None:
        with self._lock:
            self._admitted.add(key)

    def dismiss(self, key: str) -> None:
        """From now on nothing is taken from that key, also through connections that it has."""
        with self._lock:
            self._admitted.discard(key)

    def knows(self, key: str) -> bool:
        return key in self._admitted

    def answer(self) -> None:
        """One question."""
        version, request, _domain, _address, _identity, mechanism, *credentials = self.socket.recv_multipart()
        key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" and credentials else ""
        if self.knows(key):
            self.socket.send_multipart([version, request, b"200", b"OK", key.encode(), b""])
        else:
            self._refusals.add("key", "a peer whose key this run did not hand out")
            self.socket.send_multipart([version, request, b"400", b"unknown key", b"", b""])

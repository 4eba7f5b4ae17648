"""Links inside one process: messages go as they are, without being written out."""

import itertools
import threading
from collections import deque

from siafu.wire.codec import encode, size
from siafu.wire.link import LinkLost, Peer, Traffic
from siafu.wire.messages import Message

MARK = 64
"""Messages that may wait for one peer, in either direction."""


class InProcessListener:
    """A server's end; `connect` makes the other."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Peer, Message]] = deque()
        self._links: dict[Peer, InProcessLink] = {}
        self._woken = False

    def connect(self, key: str = "") -> "InProcessLink":
        """Connect a new peer; `key` stands for the key that it would have proved."""
        with self._changed:
            peer = Peer(next(self._numbers).to_bytes(8, "big"), key)
            self._links[peer] = InProcessLink(self, peer, self._changed)
            return self._links[peer]

    def send(self, peer: Peer, message: Message) -> bool:
        with self._changed:
            link = self._links.get(peer)
            if link is None or len(link.waiting) >= MARK:
                return False
            self.traffic.went(_bytes(message))
            link.waiting.append(message)
            self._changed.notify_all()
            return True

    def receive(self, seconds: float) -> tuple[Peer, Message] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._woken, seconds)
            self._woken = False
            if not self._waiting:
                return None
            peer, message = self._waiting.popleft()
            link = self._links.get(peer)
            if link is not None:
                link.unread -= 1
            self.traffic.came(_bytes(message))
            self._changed.notify_all()
            return peer, message

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            for link in self._links.values():
                link.open = False
            self._links.clear()
            self._waiting.clear()
            self._changed.notify_all()

    def _put(self, link: "InProcessLink", message: Message, seconds: float) -> None:
        """Queue the peer's message, once there is room for it."""
        with self._changed:
            there_is_room = self._changed.wait_for(lambda: link.unread < MARK or not link.open, seconds)
            if not there_is_room or not link.open:
                raise LinkLost("the server in this process does not read what it is sent")
            link.unread += 1
            self._waiting.append((link.peer, message))
            self._changed.notify_all()

    def _drop(self, link: "InProcessLink") -> None:
        with self._changed:
            link.open = False
            self._links.pop(link.peer, None)
            self._changed.notify_all()


class InProcessLink:
    """A Lambda's end, made by `InProcessListener.connect`."""

    def __init__(self, listener: InProcessListener, peer: Peer, changed: threading.Condition) -> None:
        self.traffic = Traffic()
        self.peer = peer
        self.open = True
        self.waiting: deque[Message] = deque()
        self.unread = 0
        self._listener, self._changed = listener, changed

    def send(self, message: Message, seconds: float) -> None:
        self._listener._put(self, message, seconds)
        self.traffic.went(_bytes(message))

    def receive(self, seconds: float) -> Message | None:
        with self._changed:
            self._changed.wait_for(lambda: self.waiting or not self.open, seconds)
            if not self.waiting:
                return None
            message = self.waiting.popleft()
        self.traffic.came(_bytes(message))
        return message

    def close(self) -> None:
        self._listener._drop(self)


def _bytes(message: Message) -> int:
    """Bytes that a message would take on a wire."""
    return size(encode(message))

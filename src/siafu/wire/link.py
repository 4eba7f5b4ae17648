"""Link and Listener: the two ends of a connection, whatever carries it.

A server has one Listener and many peers; a Lambda has one Link to each server. Neither may be used by two threads
at once; only `Listener.wake` may be called from anywhere.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from siafu.base.errors import SiafuError
from siafu.wire.messages import Message


class LinkLost(SiafuError):
    """The other side does not receive or send any more."""


class Peer(NamedTuple):
    """A client of a Listener.

    address: of the connection
    key:     public key whose secret the peer has proved to have; "" where there are no keys
    """

    address: bytes
    key: str


@dataclass(slots=True)
class Traffic:
    """Bytes and messages through one end, without the transport's own."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0

    def came(self, size: int) -> None:
        self.bytes_in += size
        self.messages_in += 1

    def went(self, size: int) -> None:
        self.bytes_out += size
        self.messages_out += 1


class Link(Protocol):
    """A Lambda's end."""

    traffic: Traffic

    def send(self, message: Message, seconds: float) -> None:
        """Send a message. Waits while the other side is behind; LinkLost if that takes longer than `seconds`."""

    def receive(self, seconds: float) -> Message | None:
        """The next message; None: none came within `seconds`. A Refusal if it is not a message."""

    def close(self) -> None: ...


class Listener(Protocol):
    """A server's end. Messages that are not ours are counted and dropped."""

    traffic: Traffic

    def send(self, peer: Peer, message: Message) -> bool:
        """Send a message without waiting. False: the peer is gone, or does not receive."""

    def receive(self, seconds: float) -> tuple[Peer, Message] | None:
        """The next message; None: none came within `seconds`, or somebody called `wake`."""

    def wake(self) -> None: ...

    def close(self) -> None: ...

"""Link and Listener: the two ends of a connection, whatever carries it.

A server has one Listener and many peers; a Lambda has one Link to each server. Neither may be used by two threads
at once; only `Listener.wake` may be called from anywhere.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from siafu.base.errors import SiafuError
from siafu.wire.messages import Message


class LinkLost(SiafuError):
    """The other side does not take or give anything any more."""


class Peer(NamedTuple):
    """Somebody at the other end of a Listener.

    address: which connection
    key:     whose: the public key that the peer has proved to hold the secret of; "" where there are no keys
    """

    address: bytes
    key: str


@dataclass(slots=True)
class Traffic:
    """Bytes and messages through one end, without what the transport adds."""

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
        """Waits while the other side is behind; LinkLost if that takes longer than `seconds`."""

    def receive(self, seconds: float) -> Message | None:
        """The next message; None: none came within `seconds`. A Refusal if it is not a message."""

    def close(self) -> None: ...


class Listener(Protocol):
    """A server's end. Messages that are not ours are counted and dropped."""

    traffic: Traffic

    def send(self, peer: Peer, message: Message) -> bool:
        """Never waits. False: the peer is gone, or does not take what it asked for."""

    def receive(self, seconds: float) -> tuple[Peer, Message] | None:
        """The next message; None: none came within `seconds`, or somebody called `wake`."""

    def wake(self) -> None: ...

    def close(self) -> None: ...

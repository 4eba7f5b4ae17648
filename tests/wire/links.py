"""Pairs of a Listener and a Link, whatever carries them."""

from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from siafu.wire.inprocess import InProcessListener
from siafu.wire.keys import Keys, make_keys
from siafu.wire.link import Link, Listener, Peer
from siafu.wire.messages import Message
from siafu.wire.zeromq import ZmqLink, ZmqListener

SERVER = make_keys()
MINE = make_keys()


@contextmanager
def listening(**options: int) -> Iterator[ZmqListener]:
    listener = ZmqListener(SERVER, "tcp://127.0.0.1:*", **options)
    listener.admit(MINE.public)
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def linked(
    listener: ZmqListener, server: str | None = SERVER.public, keys: Keys | None = MINE
) -> Iterator[ZmqLink]:
    with zmq.Context() as context:
        link = ZmqLink(context, listener.address, server, keys)
        try:
            yield link
        finally:
            link.close()


@contextmanager
def pair(kind: str) -> Iterator[tuple[Listener, Link]]:
    if kind == "in-process":
        inside = InProcessListener()
        yield inside, inside.connect(MINE.public)
        inside.close()
        return
    with listening() as listener, linked(listener) as link:
        meet(listener, link)
        yield listener, link


def meet(listener: ZmqListener, link: ZmqLink) -> None:
    """Let the handshake happen: the listener has no thread of its own."""
    while not link.socket.poll(0, zmq.POLLOUT):
        assert listener.receive(0.05) is None


def heard(listener: Listener, seconds: float = 5.0) -> tuple[Peer, Message]:
    """The next message; turns in which there is none are passed over."""
    for _ in range(round(seconds / 0.05)):
        found = listener.receive(0.05)
        if found is not None:
            return found
    raise AssertionError(f"nothing came in {seconds} s")

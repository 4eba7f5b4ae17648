"""Links by ZeroMQ, ROUTER and DEALER: over TCP with CURVE, on one machine through a socket in a directory of the user's own.

Memory stays constant whoever is slow or hostile. Queues end at high-water marks; the credit of `messages` keeps honest
peers below them. ZeroMQ itself closes a connection that declares a larger frame than `largest_frame`, before it
allocates it, and lets nobody say a word who has not proved an admitted key.
"""

from contextlib import suppress
from socket import socketpair
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from siafu.wire.authenticator import Authenticator
from siafu.wire.codec import decode, encode, size
from siafu.wire.keys import Keys, check_key
from siafu.wire.link import LinkLost, Peer, Traffic
from siafu.wire.messages import MOST_CREDIT, Message, Refused
from siafu.wire.near import is_near
from siafu.wire.refusal import Refusal, Refusals
from siafu.wire.tensors import Buffer

LARGEST_FRAME = 64 << 20
_CURVE_BYTES = 64  # what encryption adds to a frame, and some
_READ_MARK = 8  # messages of one peer that wait to be read; then TCP holds it back
_SEND_MARK = 4 * MOST_CREDIT  # above all credit, so that only a peer that lies about it gets there
_HANDSHAKE_MS = 10_000
_MOST_HANDSHAKES = 256  # that are counted at a time
_HEARTBEAT_MS = 15_000


class ZmqListener:
    """A server's end.

    keys:          the server's; None: not encrypted. At an "ipc://" address a peer still says its secret; elsewhere everyone is
                   let in, for measurements
    address:       where to listen, "tcp://HOST:*" for any port; the attribute says which it became
    largest_frame: in bytes
    """

    def __init__(self, keys: Keys | None, address: str, *, largest_frame: int = LARGEST_FRAME) -> None:
        self.traffic = Traffic()
        self.refusals = Refusals(address)
        self._context = zmq.Context()
        self._authenticator = Authenticator(self._context, self.refusals)
        self._asks = keys is not None or is_near(address)
        self._socket = self._context.socket(zmq.ROUTER)
        _limit(self._socket, largest_frame)
        self._socket.rcvhwm, self._socket.sndhwm = _READ_MARK, _SEND_MARK
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        _watch_connection(self._socket)
        if keys is not None:
            self._socket.setsockopt(zmq.CURVE_SERVER, 1)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
        elif self._asks:
            self._socket.setsockopt(zmq.PLAIN_SERVER, 1)
        if self._asks:
            self._socket.setsockopt_string(zmq.ZAP_DOMAIN, "siafu")
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        )
        self._socket.bind(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._woken, self._waker = socketpair()
        self._waker.setblocking(False)
        self._poller = zmq.Poller()
        for each in (self._socket, self._authenticator.socket, self._monitor, self._woken):
            self._poller.register(each, zmq.POLLIN)

    def admit(self, key: str, secret: str | None = None) -> None:
        """Let a peer in that proves this public key; where nothing is encrypted, by its secret. From any thread."""
        check_key(key)
        self._authenticator.admit(key, secret)

    def dismiss(self, key: str) -> None:
        """Take nothing from it any more. From any thread."""
        self._authenticator.dismiss(key)

    def send(self, peer: Peer, message: Message) -> bool:
        frames = encode(message)
        try:
            self._socket.send_multipart([peer.address, *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        self.traffic.went(size(frames))
        return True

    def receive(self, seconds: float) -> tuple[Peer, Message] | None:
        ready = dict(self._poller.poll(round(1000 * seconds)))
        # Doors first: who floods the socket must not keep others out.
        if self._authenticator.socket in ready:
            self._authenticator.answer()
        if self._monitor in ready:
            self._count_failed_handshakes()
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        return self._read() if self._socket in ready else None

    def _count_failed_handshakes(self) -> None:
        # ZeroMQ waits until they are read: who floods the door must not hold up others.
        for _ in range(_MOST_HANDSHAKES):
            recv_monitor_message(self._monitor)
            self.refusals.add("handshake", "a peer without the right keys, or one that does not speak ZeroMQ")
            if not self._monitor.poll(0):
                return

    def wake(self) -> None:
        with suppress(BlockingIOError):  # there are calls enough to be heard
            self._waker.send(b"\0")

    def close(self) -> None:
        self._socket.disable_monitor()
        for each in (self._socket, self._authenticator.socket, self._monitor):
            each.close(linger=0)
        self._context.term()
        self._woken.close()
        self._waker.close()

    def _read(self) -> tuple[Peer, Message] | None:
        """The next message, unless it is refused."""
        address, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        buffers = [frame.buffer for frame in frames]
        self.traffic.came(size(buffers))
        try:
            peer = Peer(bytes(address.buffer), self._key_of(address))
            try:
                return peer, decode(buffers)
            except Refusal as refusal:
                self.send(peer, Refused(str(refusal)))
                raise
        except Refusal as refusal:
            self.refusals.add(refusal.reason, str(refusal))
            return None

    def _key_of(self, frame: Any) -> str:
        if not self._asks:
            return ""
        key: str = frame.get("User-Id")
        if not self._authenticator.knows(key):
            raise Refusal("key", "a message under a key that was taken back")
        return key


class ZmqLink:
    """A Lambda's end. Connects on its own, and again when the connection breaks; what was under way is then lost.

    server: the server's public key; None: as `ZmqListener` without keys
    keys:   the Lambda's own; None: the server asks for none
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        server: str | None,
        keys: Keys | None,
        *,
        largest_frame: int = LARGEST_FRAME,
    ) -> None:
        self.traffic = Traffic()
        self._address = address
        self.socket = context.socket(zmq.DEALER)
        _limit(self.socket, largest_frame)
        self.socket.rcvhwm, self.socket.sndhwm = _SEND_MARK, _READ_MARK
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        _watch_connection(self.socket)
        if server is not None and keys is not None:
            check_key(server)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, server.encode())
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
        elif keys is not None:
            self.socket.setsockopt(zmq.PLAIN_USERNAME, keys.public.encode())
            self.socket.setsockopt(zmq.PLAIN_PASSWORD, keys.secret.encode())
        self.socket.connect(address)

    def send(self, message: Message, seconds: float) -> None:
        self.send_frames(encode(message), seconds)

    def send_frames(self, frames: list[Buffer], seconds: float) -> None:
        """A message as `encode` made it."""
        if not self.socket.poll(round(1000 * seconds), zmq.POLLOUT):
            raise LinkLost(
                f"{self._address} took nothing for {seconds:g} s: it is not there, or refuses our key"
            )
        self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        self.traffic.went(size(frames))

    def receive(self, seconds: float) -> Message | None:
        if not self.socket.poll(round(1000 * seconds)):
            return None
        frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        buffers = [frame.buffer for frame in frames]
        self.traffic.came(size(buffers))
        return decode(buffers)

    def close(self) -> None:
        self.socket.close(linger=0)


def _limit(socket: "zmq.Socket[bytes]", largest_frame: int) -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, largest_frame + _CURVE_BYTES)
    socket.linger = 0


def _watch_connection(socket: "zmq.Socket[bytes]") -> None:
    """Notice a peer that was cut off without a word."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2 * _HEARTBEAT_MS)

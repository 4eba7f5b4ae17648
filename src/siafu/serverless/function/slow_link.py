"""SlowLink: a connection with the latency and the bandwidth of a Lambda's, on a machine that has better ones."""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from socket import socketpair

import zmq

from siafu.base.errors import BadInput
from siafu.wire.codec import encode, size
from siafu.wire.link import LinkLost, Traffic
from siafu.wire.messages import Message
from siafu.wire.refusal import Refusal
from siafu.wire.zeromq import ZmqLink

LATENCY_VARIABLE = "SIAFU_WIRE_LATENCY_MS"
BANDWIDTH_VARIABLE = "SIAFU_WIRE_MBPS"
_MARK = 16  # messages that may wait to set out


@dataclass(slots=True)
class Line:
    """One direction of a Lambda's connection to everyone: messages follow each other, each then travels on alone.

    latency: seconds, of every message
    speed:   bytes a second; None: no limit
    """

    latency: float
    speed: float | None
    _free: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arrival(self, now: float, length: int) -> float:
        """When a message is there that is ready to set out now."""
        with self._lock:
            took = 0.0 if self.speed is None else length / self.speed
            self._free = max(now, self._free) + took
            return self._free + self.latency


def lines(variables: Mapping[str, str] = os.environ) -> tuple[Line, Line] | None:
    """Inwards and outwards, as the environment says; None: it says nothing."""
    latency, mbps = variables.get(LATENCY_VARIABLE, ""), variables.get(BANDWIDTH_VARIABLE, "")
    if not latency and not mbps:
        return None
    try:
        seconds, speed = float(latency or 0) / 1000, float(mbps) * 1e6 / 8 if mbps else None
    except ValueError as error:
        raise BadInput(f"{LATENCY_VARIABLE} and {BANDWIDTH_VARIABLE} must be numbers") from error
    return Line(seconds, speed), Line(seconds, speed)


class SlowLink:
    """A ZmqLink whose messages come and go as late as its lines say. A thread of its own holds the socket."""

    def __init__(self, link: ZmqLink, inwards: Line, outwards: Line) -> None:
        self._link, self._in, self._out = link, inwards, outwards
        self._inbox: deque[tuple[float, Message | Refusal]] = deque()
        self._outbox: deque[tuple[float, Message]] = deque()
        self._changed = threading.Condition()
        self._open, self._lost = True, ""
        self._ear, self._bell = socketpair()
        self._thread = threading.Thread(target=self._pump, name="siafu-slow-link", daemon=True)
        self._thread.start()

    @property
    def traffic(self) -> Traffic:
        return self._link.traffic

    @traffic.setter
    def traffic(self, traffic: Traffic) -> None:
        self._link.traffic = traffic

    def send(self, message: Message, seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._outbox) < _MARK or self._lost, seconds):
                raise LinkLost("what was sent before has not set out yet")
            if self._lost:
                raise LinkLost(self._lost)
            due = self._out.arrival(time.monotonic(), size(encode(message)))
            self._outbox.append((due, message))
        self._bell.send(b"\0")

    def receive(self, seconds: float) -> Message | None:
        until = time.monotonic() + seconds
        with self._changed:
            while True:
                now = time.monotonic()
                due = self._inbox[0][0] if self._inbox else until
                if self._inbox and due <= now:
                    break
                if now >= until or self._lost:
                    return None
                self._changed.wait(min(due, until) - now)
            _, message = self._inbox.popleft()
        if isinstance(message, Refusal):
            raise message
        return message

    def close(self) -> None:
        self._open = False
        self._bell.send(b"\0")
        self._thread.join()
        self._ear.close()
        self._bell.close()
        self._link.close()

    def _pump(self) -> None:
        poller = zmq.Poller()
        poller.register(self._link.socket, zmq.POLLIN)
        poller.register(self._ear, zmq.POLLIN)
        try:
            while self._open:
                ready = dict(poller.poll(self._patience_ms()))
                if self._ear.fileno() in ready:
                    self._ear.recv(4096)
                if self._link.socket in ready:
                    self._take_in()
                self._send_due()
        except LinkLost as lost:
            with self._changed:
                self._lost = str(lost)
                self._changed.notify_all()

    def _patience_ms(self) -> int | None:
        with self._changed:
            if not self._outbox:
                return None
            return max(0, math.ceil(1000 * (self._outbox[0][0] - time.monotonic())))

    def _take_in(self) -> None:
        before = self._link.traffic.bytes_in
        try:
            message: Message | Refusal | None = self._link.receive(0)
        except Refusal as refusal:
            message = refusal
        if message is None:
            return
        due = self._in.arrival(time.monotonic(), self._link.traffic.bytes_in - before)
        with self._changed:
            self._inbox.append((due, message))
            self._changed.notify_all()

    def _send_due(self) -> None:
        while True:
            with self._changed:
                if not self._outbox or self._outbox[0][0] > time.monotonic():
                    return
                message = self._outbox[0][1]
            self._link.send(message, 30.0)
            with self._changed:
                self._outbox.popleft()
                self._changed.notify_all()

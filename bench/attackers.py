"""Attackers of a ZeroMQ socket, in a process of their own: `bench/hostile.py` starts them, and tells them what they know.

python bench/attackers.py stranger|member COUNT < DOOR.json
"""

import base64
import json
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import zmq

HALF_OPEN = 400
KINDS = ("random", "cut", "replayed", "forged", "huge")
HUGE = 256 << 10
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01%b" + bytes(15) + b"\0" + bytes(31)

Frames = list[bytes]


@dataclass(frozen=True)
class Door:
    """A socket to be attacked.

    server: the server's public key; None: it asks for a name and a word
    keys:   of a member of the run, that the attacker has
    true:   messages of the attacker's own that the socket would take, or takes again and again without effect
    forged: messages in another's name
    """

    address: str
    server: str | None
    keys: tuple[str, str]
    true: list[Frames]
    forged: list[Frames]

    def text(self) -> str:
        """As JSON has it."""
        coded = [
            [[base64.b64encode(frame).decode() for frame in each] for each in kind]
            for kind in (self.true, self.forged)
        ]
        return json.dumps([self.address, self.server, self.keys, *coded])

    @classmethod
    def of(cls, text: str) -> "Door":
        address, server, keys, *coded = json.loads(text)
        true, forged = ([[base64.b64decode(frame) for frame in each] for each in kind] for kind in coded)
        return cls(address, server, tuple(keys), true, forged)


def hostile(door: Door, seed: int) -> Iterator[Frames]:
    """Messages, each kind in turn."""
    dice = random.Random(seed)
    while True:
        for kind in KINDS:
            yield _made(kind, door, dice)


def _made(kind: str, door: Door, dice: random.Random) -> Frames:
    true = dice.choice(door.true)
    match kind:
        case "random":
            return [dice.randbytes(dice.randrange(200)) for _ in range(dice.randrange(1, 5))]
        case "cut":
            return [each[: dice.randrange(len(each))] if each else each for each in true]
        case "replayed":
            return true
        case "forged":
            return dice.choice(door.forged)
    return [true[0], bytes(HUGE)]


def attack_as_member(door: Door, count: int, seed: int) -> None:
    """Flood one connection; answers are not read."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as bad:
        bad.linger, bad.sndtimeo = 60_000, 60_000
        bad.sndhwm = 100
        _prove(bad, door)
        bad.connect(door.address)
        for _, frames in zip(range(count), hostile(door, seed), strict=False):
            bad.send_multipart(frames)


def _prove(bad: Any, door: Door) -> None:
    public, secret = (each.encode() for each in door.keys)
    if door.server is None:
        bad.plain_username, bad.plain_password = public, secret
    else:
        bad.curve_serverkey = door.server.encode()
        bad.curve_publickey, bad.curve_secretkey = public, secret


def attack_as_stranger(door: Door, count: int, seed: int) -> None:
    """A connection for every message: greetings that are right, cut or wrong, and then anything; then many half-open ones."""
    greeting = _GREETING.replace(b"%b", b"PLAIN" if door.server is None else b"CURVE")
    dice = random.Random(seed)
    for _, frames in zip(range(count), hostile(door, seed), strict=False):
        said = dice.choice([b"", greeting[: dice.randrange(64)], greeting, greeting])
        with _connected(door) as raw, suppress(ConnectionError):  # it may be shut out in the middle of a word
            raw.sendall(said + b"".join(map(_framed, frames)))
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            stack.enter_context(_connected(door)).sendall(greeting[:20])
        with zmq.Context() as context:  # and some who speak ZeroMQ well, under keys of their own
            for _ in range(50):
                public, secret = (each.decode() for each in zmq.curve_keypair())
                bad = stack.enter_context(context.socket(zmq.DEALER))
                bad.linger = 0
                _prove(bad, Door(door.address, door.server, (public, secret), [], []))
                bad.connect(door.address)
                bad.send(b"let me in")
            time.sleep(2.0)
            stack.close()


def _framed(frame: bytes) -> bytes:
    """A frame as ZMTP has it, sometimes one that says it is far larger."""
    size = 2**62 if len(frame) == HUGE else len(frame)
    return b"\x02" + struct.pack(">Q", size) + frame[:1000]


def _connected(door: Door) -> socket.socket:
    kind, _, where = door.address.partition("://")
    if kind == "ipc":
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(where)
        return raw
    host, _, port = where.rpartition(":")
    raw = socket.create_connection((host, int(port)), 10)
    # Ports that wait for late packets would run out.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return raw


def main() -> None:
    attacker, count = sys.argv[1], int(sys.argv[2])
    door = Door.of(sys.stdin.read())
    (attack_as_member if attacker == "member" else attack_as_stranger)(door, count, seed=1)


if __name__ == "__main__":
    main()

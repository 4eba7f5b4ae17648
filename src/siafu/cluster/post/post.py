"""WirePost: brings letters between servers, each once and in order, however often a connection breaks.

Between machines letters go over TCP, encrypted, and only those who prove a key of the roster are heard. On one machine
they go through a socket in a directory that is the user's alone, and the sender says a secret. Every letter bears the *life* of its sender: when a
server is replaced, the roster has a new life in its place, and what the old one says is refused, however late it comes.

A letter is kept until it is acknowledged. The receiver takes letters in the order of their numbers, and no number twice.
When none was acknowledged for a while, the sender asks which letters have come. The question travels behind the letters,
so the answer tells which of them were lost, and only those are sent again. A slow link alone causes no resending.
"""

import os
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zmq

from siafu.cluster.post.letters import Postmark, decode, encode
from siafu.cluster.post.member import Member
from siafu.cluster.post.requests import Alive
from siafu.pipeline.ids import Address
from siafu.runtime.letter import Letter
from siafu.wire.authenticator import Authenticator
from siafu.wire.keys import Keys, make_keys
from siafu.wire.near import NearDirectory
from siafu.wire.refusal import Refusal, Refusals

LARGEST_FRAME = 1 << 31
_ASK_SECONDS = 1.0  # without an answer until the other is asked what it has
_STALL_SECONDS = 1.0  # a turn that took longer says nothing of others: this process was busy, or paused
_RETRY_SECONDS = 0.2  # from being turned away to the next try
_DEAF_SECONDS = 2.0  # without any answer until a new connection is tried; twice as long the next time
_END_SECONDS = 10.0
_TURN_MS = 200
_READ_MARK = 64  # letters of one server that wait to be read
_HANDSHAKE_MS = 10_000
_BUSY_MS = 60_000  # that a server may be busy with one letter before its connections are taken for broken
_ANSWER = struct.Struct(
    "<QQq"
)  # my life, how many of your letters I have, the number of the one that I answer
_QUESTION = Letter(Alive())


@dataclass(slots=True)
class _Line:
    """Letters to one server that it has not acknowledged, and its socket.

    sent:  number of `letters`, from the first, that were sent through `socket`
    next:  the next letter's number
    moved: time of the last progress
    ask:   time to ask which letters have come
    asked: the number of the last question; questions count down from -1
    until: the letters before this number were sent before it
    deaf:  seconds without any answer through `socket` until another is tried
    is_over: the server is gone, and letters to it are dropped
    """

    member: Member | None = None
    socket: Any = None
    letters: deque[tuple[int, Letter]] = field(default_factory=deque)
    sent: int = 0
    next: int = 0
    moved: float = 0.0
    ask: float = 0.0
    asked: int = 0
    until: int = 0
    deaf: float = _DEAF_SECONDS
    is_over: bool = False


class WirePost:
    """One server's letters, over ZeroMQ. Any thread may call; `hear` is called in the post's own thread, one letter at a time.

    machine: the address that others reach this machine at
    hear:    called with every letter that comes
    failed:  called with an error in `hear`; the post has ended then
    stuck:   called once a second with a server that has acknowledged nothing for so many seconds; one that was paused itself
             does not complain of others
    """

    def __init__(
        self,
        me: Address,
        life: int,
        machine: str,
        hear: Callable[[Address, Letter], None],
        failed: Callable[[BaseException], None],
        stuck: Callable[[Member, float], None] = lambda member, seconds: None,
    ) -> None:
        self.refusals = Refusals(f"post of {me}")
        self.bytes_out = 0
        self._me, self._life = me, life
        self._hear, self._failed, self._stuck = hear, failed, stuck
        self._keys: Keys = make_keys()
        self._context: Any = zmq.Context()
        self._authenticator = Authenticator(self._context, self.refusals)
        self._directory = NearDirectory()
        self._far = self._listener()
        self._far.setsockopt(zmq.CURVE_SERVER, 1)
        self._far.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
        self._far.setsockopt_string(zmq.ZAP_DOMAIN, "siafu")
        self._far.bind(f"tcp://{machine}:*")
        self._near = self._listener()
        self._near.setsockopt(zmq.PLAIN_SERVER, 1)
        self._near.setsockopt_string(zmq.ZAP_DOMAIN, "siafu")
        self._near.bind(self._directory.address("post"))
        self.member = Member(
            me,
            life,
            machine,
            self._far.getsockopt_string(zmq.LAST_ENDPOINT),
            self._near.getsockopt_string(zmq.LAST_ENDPOINT),
            self._keys.public,
            secrets.token_hex(32),
        )
        self._lines: dict[Address, _Line] = {}
        self._roster: dict[Address, Member] = {}
        self._expected: dict[Address, tuple[int, int]] = {}
        self._heard: dict[Address, float] = {}
        self._complained: dict[Address, float] = {}
        self._lock = threading.RLock()
        self._stopping = self._closed = False
        self._listened = time.monotonic()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._woken, self._waker = reader, writer
        self._poller = zmq.Poller()
        for each in (self._far, self._near, self._authenticator.socket, self._woken):
            self._poller.register(each, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name=f"siafu-post-{me}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 0.0) -> None:
        """Wait at most so long for letters to be acknowledged, then end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._thread.is_alive():
            with self._lock:
                if not any(line.letters for line in self._lines.values() if line.member is not None):
                    break
            time.sleep(0.01)
        self._stopping = True
        self._wake()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                return  # what it hears does not let it go, and the sockets are its own
        self._close()

    def meet(self, members: Iterable[Member]) -> None:
        """Add members, or replace those of an earlier life. Letters to an earlier life are dropped."""
        with self._lock:
            for member in members:
                known = self._roster.get(member.address)
                if member.address == self._me or (known is not None and known.life >= member.life):
                    continue
                if known is not None:
                    self._authenticator.dismiss(known.key)
                self._authenticator.admit(member.key, member.word)
                self._roster[member.address] = member
                self._heard[member.address] = time.monotonic()
                line = self._lines.setdefault(member.address, _Line())
                left = [letter for _, letter in line.letters if not _is_late(letter, member)]
                line.letters = deque(enumerate(left))
                line.next, line.sent, line.until, line.member = len(line.letters), 0, 0, member
                line.is_over = False
        self._wake()

    def part(self, server: Address) -> None:
        """A server is lost: hear it no more, and keep letters for its replacement.

        It may live on for a while. A letter that it acknowledged would never come to the replacement.
        """
        with self._lock:
            if (line := self._lines.get(server)) is not None:
                line.member = None

    def forget(self, server: Address, life: int) -> None:
        """A member is gone, in that life, and nobody waits for another: drop letters to it, until one is met there."""
        with self._lock:
            known = self._roster.get(server)
            if known is not None and known.life == life:
                line = self._lines[server]
                line.member, line.is_over = None, True
                line.letters.clear()
                line.sent = 0

    def send(self, to: Address, letter: Letter) -> None:
        """Send a letter; it is kept until the receiver has it, or is replaced."""
        with self._lock:
            line = self._lines.setdefault(to, _Line())
            if line.is_over:
                return
            if not line.letters:
                line.moved = time.monotonic()
            line.letters.append((line.next, letter))
            line.next += 1
        self._wake()

    def flush(self) -> None:
        """Nothing waits: the thread has been woken."""

    def has_unacknowledged(self, besides: Address) -> bool:
        """Whether a letter to anyone else than `besides` is not acknowledged."""
        with self._lock:
            return any(line.letters for to, line in self._lines.items() if to != besides)

    def silence(self, server: Address) -> float:
        """Seconds without a letter from a server while this process listened."""
        with self._lock:
            return max(0.0, self._listened - self._heard.get(server, self._listened))

    # In the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                ready = dict(self._poller.poll(_TURN_MS))
                self._forgive_stall()
                if self._authenticator.socket in ready:
                    self._authenticator.answer()
                if self._woken in ready:
                    os.read(self._woken, 4096)
                for listener in (self._far, self._near):
                    if listener in ready:
                        self._receive_all(listener)
                self._forgive_stall()
                with self._lock:
                    for address, line in list(self._lines.items()):
                        self._attend(address, line, ready)
                    self._listened = time.monotonic()
                self._complain()
        except BaseException as error:
            if not self._stopping:
                self._failed(error)

    def _forgive_stall(self) -> None:
        """Do not count the time in which this process did not listen as others' silence."""
        with self._lock:
            now = time.monotonic()
            stalled = now - self._listened
            if stalled < _STALL_SECONDS:
                return
            self._listened = now
            for line in self._lines.values():
                line.moved = min(now, line.moved + stalled)
            for address, heard in self._heard.items():
                self._heard[address] = min(now, heard + stalled)

    def _receive_all(self, listener: Any) -> None:
        for _ in range(64):  # then others have their turn
            try:
                identity, *frames = listener.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                self._take(listener, identity, frames)
            except Refusal as refusal:
                self.refusals.add(refusal.reason, str(refusal))

    def _take(self, listener: Any, identity: Any, frames: list[Any]) -> None:
        mark, letter = decode([frame.buffer for frame in frames])
        with self._lock:
            known = self._lines[mark.sender].member if mark.sender in self._lines else None
            if known is None or mark.life != known.life:
                raise Refusal("unexpected", f"a letter of {mark.sender} in life {mark.life}")
            if identity.get("User-Id") != known.key:
                raise Refusal("key", f"a letter of {mark.sender} under another's key")
            self._heard[mark.sender] = time.monotonic()
            life, expected = self._expected.get(mark.sender, (mark.life, 0))
            if life != mark.life:
                expected = 0
            if mark.number > expected:
                return  # one before it was lost, and will come again
            new = mark.number == expected
            self._expected[mark.sender] = mark.life, expected + new
        if new:
            self._hear(mark.sender, letter)
        with suppress(zmq.ZMQError):
            listener.send_multipart(
                [bytes(identity.buffer), _ANSWER.pack(self._life, expected + new, mark.number)], zmq.NOBLOCK
            )

    def _attend(self, address: Address, line: _Line, ready: dict[Any, int]) -> None:
        if line.member is None:
            return
        if line.socket is None or line.socket.member != line.member:
            if not line.letters:
                # Without need: who is new would be turned away by those who have not met it.
                self._disconnect(line)
                return
            self._connect(line)
        if line.socket.zmq in ready:
            self._hear_answers(address, line)
        try:
            self._send_all(line)
        except zmq.Again:
            # The other would not have this one: it had not met it. A socket that was turned away does not try again.
            if time.monotonic() - line.socket.since > _RETRY_SECONDS:
                self._connect(line)
        # One that was turned away may also take letters for ever and bring them nowhere.
        silent = time.monotonic() - max(line.moved, line.socket.since)
        if line.letters and not line.socket.answered and silent > line.deaf:
            line.deaf *= 2
            self._connect(line)

    def _send_all(self, line: _Line) -> None:
        now = time.monotonic()
        if not line.sent:
            line.ask = now + _ASK_SECONDS
        elif line.letters and now >= line.ask:
            line.ask = now + _ASK_SECONDS
            line.asked -= 1
            line.until = line.letters[line.sent - 1][0] + 1
            self._push(line, line.asked, _QUESTION)
        while line.sent < len(line.letters):
            self._push(line, *line.letters[line.sent])
            line.sent += 1

    def _push(self, line: _Line, number: int, letter: Letter) -> None:
        frames = encode(Postmark(self._me, self._life, number), letter)
        line.socket.zmq.send_multipart(frames, zmq.NOBLOCK, copy=False)
        self.bytes_out += sum(map(len, frames))

    def _connect(self, line: _Line) -> None:
        assert line.member is not None
        if line.socket is None or line.socket.member != line.member:
            line.moved = time.monotonic()
        self._disconnect(line)
        socket = self._context.socket(zmq.DEALER)
        _endure(socket)
        if line.member.machine == self.member.machine:
            socket.setsockopt(zmq.PLAIN_USERNAME, self.member.key.encode())
            socket.setsockopt(zmq.PLAIN_PASSWORD, self.member.word.encode())
            socket.connect(line.member.near)
        else:
            socket.setsockopt(zmq.CURVE_SERVERKEY, line.member.key.encode())
            socket.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public.encode())
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
            socket.connect(line.member.far)
        line.socket = _Socket(socket, line.member, time.monotonic())
        line.sent, line.until, line.ask = 0, 0, time.monotonic() + _ASK_SECONDS
        self._poller.register(socket, zmq.POLLIN)

    def _disconnect(self, line: _Line) -> None:
        if line.socket is not None:
            self._poller.unregister(line.socket.zmq)
            line.socket.zmq.close(linger=0)
            line.socket = None

    def _hear_answers(self, address: Address, line: _Line) -> None:
        while True:
            try:
                answer = line.socket.zmq.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(answer) != _ANSWER.size:
                continue
            life, taken, answered = _ANSWER.unpack(answer)
            if line.member is None or life != line.member.life:
                continue
            now = time.monotonic()
            self._heard[address] = now
            line.socket.answered, line.deaf = True, _DEAF_SECONDS
            while line.letters and line.letters[0][0] < taken:
                line.letters.popleft()
                line.sent = max(0, line.sent - 1)
                line.moved, line.ask = now, now + _ASK_SECONDS
            if answered == line.asked and taken < line.until:
                line.sent = line.until = 0  # they were lost on the way

    def _complain(self) -> None:
        """Report servers that acknowledge nothing."""
        now = time.monotonic()
        with self._lock:
            late = [
                (line.member, now - line.moved)
                for line in self._lines.values()
                if line.letters and line.member is not None and now - line.moved > _ASK_SECONDS
            ]
        for member, seconds in late:
            if now - self._complained.get(member.address, 0.0) > 1.0:
                self._complained[member.address] = now
                self._stuck(member, seconds)

    def _listener(self) -> Any:
        socket = self._context.socket(zmq.ROUTER)
        _endure(socket)
        # Who sends faster than letters are read waits, and its memory is its own. Nothing is lost: it keeps them anyway.
        socket.rcvhwm = _READ_MARK
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        # What waits to be read holds up the other's heartbeats too.
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _BUSY_MS)
        return socket

    def _wake(self) -> None:
        with self._lock, suppress(BlockingIOError):
            if not self._closed:  # else the number may be another file's
                os.write(self._waker, b"\0")

    def _close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for line in self._lines.values():
                if line.socket is not None:
                    line.socket.zmq.close(linger=0)
            for each in (self._far, self._near, self._authenticator.socket):
                each.close(linger=0)
            self._context.term()
            for pipe in (self._woken, self._waker):
                os.close(pipe)
        self._directory.remove()


@dataclass(slots=True)
class _Socket:
    """A connection; answered: whether anything has come back through it."""

    zmq: Any
    member: Member
    since: float
    answered: bool = False


def _is_late(letter: Letter, member: Member) -> bool:
    """Whether a letter is for an earlier life of a member, who would not hear it. Those to a process are for any."""
    return letter.stamp is not None and letter.stamp.to_life < member.life


def _endure(socket: Any) -> None:
    """Set no high-water mark, which would drop letters: the run itself bounds their number."""
    socket.linger = 0
    socket.rcvhwm = socket.sndhwm = 0
    socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_FRAME)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)

"""Post: carries letters between hosts. Here, by reference, between those of one process."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from siafu.pipeline.ids import Address
from siafu.runtime.letter import Letter

Hear = Callable[[Address, Letter], None]
"""Takes a letter: its sender, and the letter."""


class Post(Protocol):
    """One host's way to the others. Any thread may call. Letters from one host to another come in order, each once."""

    def send(self, to: Address, letter: Letter) -> None:
        """Send a letter. It may wait until `flush` is called."""

    def flush(self) -> None:
        """Carry the letters that were sent. The caller holds no host's lock."""


class LocalPost:
    """The post of one process: letters are handed over as they are, by one thread at a time.

    A thread that has sent a letter carries all letters that wait, unless another thread does already.
    """

    def __init__(self) -> None:
        self._hosts: dict[Address, Hear] = {}
        self._waiting: deque[tuple[Address, Address, Letter]] = deque()
        self._last: deque[Callable[[], None]] = deque()
        self._carrying = threading.Lock()
        self._closed = False

    def of(self, address: Address) -> "Counter":
        """The post as the host at `address` uses it."""
        return Counter(self, address)

    def meet(self, address: Address, hear: Hear) -> None:
        """Letters to `address` are heard by `hear`."""
        self._hosts[address] = hear

    def close(self) -> None:
        """Carry nothing more."""
        self._closed = True

    @property
    def num_waiting(self) -> int:
        """Letters that nobody has carried yet."""
        return len(self._waiting)

    def put(self, sender: Address, to: Address, letter: Letter) -> None:
        self._waiting.append((sender, to, letter))

    def when_quiet(self, call: Callable[[], None]) -> None:
        """Make a call once no letter waits: after everything that follows from earlier letters."""
        self._last.append(call)
        self.carry()

    def carry(self) -> None:
        # Once more after each turn: another thread may have put something down when this one had just looked.
        while (self._waiting or self._last) and self._carrying.acquire(blocking=False):
            try:
                while (self._waiting or self._last) and not self._closed:
                    if self._waiting:
                        sender, to, letter = self._waiting.popleft()
                        self._hosts[to](sender, letter)
                    else:
                        self._last.popleft()()
            finally:
                self._carrying.release()
            if self._closed:
                return


class PostOffice(Protocol):
    """A post that all hosts of a process share."""

    def put(self, sender: Address, to: Address, letter: Letter) -> None:
        """Take a letter."""

    def carry(self) -> None:
        """Carry the letters that wait."""


class Counter:
    """Where one host hands its letters in at a post that it shares."""

    __slots__ = ("_me", "_post")

    def __init__(self, post: PostOffice, me: Address) -> None:
        self._post, self._me = post, me

    def send(self, to: Address, letter: Letter) -> None:
        self._post.put(self._me, to, letter)

    def flush(self) -> None:
        self._post.carry()

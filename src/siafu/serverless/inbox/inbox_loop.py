"""InboxLoop: the thread in which a server's inboxes receive messages."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from siafu.wire import messages as say
from siafu.wire.link import Listener, Peer
from siafu.wire.refusal import Refusal, Refusals

_TURN_SECONDS = 0.5


class Inbox(Protocol):
    """Answers some kinds of messages."""

    @property
    def hears(self) -> Sequence[type[say.Message]]: ...

    def receive(self, peer: Peer, message: say.Message) -> None:
        """Handle a message. A Refusal is counted and sent to the peer."""


class InboxLoop:
    """Gives messages to inboxes, and makes the calls given to `call`, one after the other in one thread.

    on_failure: called in that thread with an error that is not a peer's fault; the loop has ended then
    """

    def __init__(
        self, listener: Listener, inboxes: Sequence[Inbox], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.refusals = Refusals("inbox")
        self._listener = listener
        self._inboxes = {kind: inbox for inbox in inboxes for kind in inbox.hears}
        self._on_failure = on_failure
        self._calls: deque[Callable[[], None]] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="siafu-inbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def call(self, work: Callable[[], None]) -> None:
        """Call `work` in the loop's thread, soon. From any thread."""
        self._calls.append(work)
        self._listener.wake()

    def stop(self) -> None:
        """End the thread; the listener stays open. Calls that wait are dropped."""
        self._stopping.set()
        self._listener.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def turn(self, seconds: float) -> None:
        """Make all calls and receive at most one message; the thread repeats this."""
        heard = self._listener.receive(seconds)
        while self._calls:
            self._calls.popleft()()
        if heard is not None:
            self._hear(*heard)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turn(_TURN_SECONDS)
        except BaseException as error:
            self._on_failure(error)

    def _hear(self, peer: Peer, message: say.Message) -> None:
        try:
            inbox = self._inboxes.get(type(message))
            if inbox is None:
                raise Refusal("unexpected", f"{type(message).__name__}, which nobody here answers to")
            inbox.receive(peer, message)
        except Refusal as refusal:
            self.refusals.add(refusal.reason, str(refusal))
            self._listener.send(peer, say.Refused(str(refusal)[:1000]))

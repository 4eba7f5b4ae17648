"""Ctrl-C and SIGTERM as a request: work goes on to a point where stopping loses nothing."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While this context lasts, the first SIGINT or SIGTERM is noted in `signal`; a second acts as ever.

    on_request: told of the first, in the main thread, between two of its instructions
    Only a process's main thread can watch signals: elsewhere this does nothing.
    """

    def __init__(self, on_request: Callable[[signal.Signals], None] | None = None) -> None:
        self.signal: signal.Signals | None = None
        self._on_request = on_request
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def act_as(self, number: signal.Signals) -> None:
        """Note `number` as if it had come, unless one has: for requests that come by other ways."""
        if self.signal is None:
            self._note(number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._restore()
        if self._on_request is not None:
            self._on_request(self.signal)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

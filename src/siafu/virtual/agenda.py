"""Agenda: what happens when, in virtual time."""

import heapq
from collections.abc import Callable
from typing import Any


class Agenda:
    """Calls to be made, by time; of equal times, the first that was noted."""

    def __init__(self) -> None:
        self.now = 0.0
        self._noted = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []

    def after(self, delay: float, call: Callable[..., object], *arguments: Any) -> None:
        self._noted += 1
        heapq.heappush(self._heap, (self.now + delay, self._noted, call, arguments))

    def step(self) -> bool:
        """Make the next call. False: there is none."""
        if not self._heap:
            return False
        self.now, _, call, arguments = heapq.heappop(self._heap)
        call(*arguments)
        return True

"""Alarms: times at which something is due."""

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

from siafu.serverless.control.ids import Seconds

Key = TypeVar("Key")


class Alarms(Generic[Key]):
    """At most one alarm a key; of equal times, the first that was set goes off first."""

    def __init__(self) -> None:
        self._times: dict[Key, tuple[Seconds, int]] = {}
        self._heap: list[tuple[Seconds, int, Key]] = []
        self._set = 0

    def set(self, key: Key, time: Seconds) -> None:
        """Set a key's alarm, in place of an earlier one."""
        self._set += 1
        self._times[key] = (time, self._set)
        heapq.heappush(self._heap, (time, self._set, key))

    def clear(self, key: Key) -> None:
        self._times.pop(key, None)

    def due(self, now: Seconds) -> Iterator[Key]:
        """Keys whose time has come; each is cleared as it is given."""
        while (time := self.next()) is not None and time <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._times[key]
            yield key

    def next(self) -> Seconds | None:
        """Time of the next alarm; None: there is none."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

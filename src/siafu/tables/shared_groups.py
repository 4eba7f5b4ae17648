"""SharedGroups: what threads need for a group of rows, made by the first that asks and kept while any of them uses it."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class SharedGroups(Generic[T]):
    """At most so many groups are in memory. Groups are made in any order; all rows of each are used once a pass.

    A thread uses one group at a time. If it wants another, and as many are in use as may be, it waits until one is not. A group that has
    rows left, but no user, may have to go; it is made again.

    groups: ranges of rows that follow each other and cover all
    most:   groups in memory
    make:   makes a group; one thread at a time calls it
    """

    def __init__(self, groups: Sequence[tuple[int, int]], most: int, make: Callable[[int, int], T]) -> None:
        self.groups, self._most, self._make = groups, most, make
        self._ends = np.array([last for _, last in groups])
        self._changed = threading.Condition()
        self._held: dict[int, T] = {}
        self._users: dict[int, int] = {}
        self._left: dict[int, int] = {}  # rows that were not used yet in this pass
        self._making = False

    def parts(self, first: int, last: int) -> Generator[tuple[T, int, int], None, None]:
        """Rows first:last in ranges that groups cut, ascending, each with its group, which is in use until the next is asked for."""
        if first == last:
            return
        begin, end = np.searchsorted(self._ends, (first, last - 1), side="right").tolist()
        for group in range(begin, end + 1):
            low, high = max(first, self.groups[group][0]), min(last, self.groups[group][1])
            with self._used(group, high - low) as found:
                yield found, low, high

    def begin_anew(self) -> None:
        """Forget a pass that was broken off; no thread may use a group."""
        with self._changed:
            for each in (self._held, self._users, self._left):
                each.clear()

    @contextmanager
    def _used(self, group: int, rows: int) -> Iterator[T]:
        found = self._taken(group)
        try:
            yield found
        finally:
            with self._changed:
                self._users[group] -= 1
                first, last = self.groups[group]
                self._left[group] = self._left.get(group, last - first) - rows
                if self._left[group] == 0:  # the next pass finds other rows
                    del self._left[group], self._held[group]
                self._changed.notify_all()

    def _taken(self, group: int) -> T:
        with self._changed:
            self._changed.wait_for(lambda: group in self._held or (not self._making and self._has_room()))
            if group in self._held:
                self._users[group] += 1
                return self._held[group]
            self._making = True
        try:
            found = self._make(*self.groups[group])
            with self._changed:
                self._held[group], self._users[group] = found, 1
            return found
        finally:
            with self._changed:
                self._making = False
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Whether one more may be in memory; one that nobody uses at the moment makes room."""
        if len(self._held) < self._most:
            return True
        idle = [group for group in self._held if not self._users[group]]
        if idle:
            del self._held[idle[0]]
        return bool(idle)

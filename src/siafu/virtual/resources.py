"""Resources of machines in virtual time: cores that run the most urgent job, links that carry one thing after another."""

import heapq
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from siafu.virtual.agenda import Agenda

Urgency = tuple[Any, ...]
Seconds = float | Callable[[], float]
"""Arguments of a job, or a function that gives them when the job begins."""
FIRST: Urgency = (-1,)
"""What others wait for and takes next to no time: before every task."""


class Cores:
    """The cores of one machine: jobs in, most urgent first, of equals the first that was added.

    busy: core seconds spent, by the kind of job
    """

    def __init__(self, agenda: Agenda, count: int) -> None:
        self.busy: defaultdict[str, float] = defaultdict(float)
        self._agenda = agenda
        self._free = count
        self._added = 0
        self._ready: list[tuple[Urgency, int, str, Seconds, Callable[[], None]]] = []

    def add(self, urgency: Urgency, kind: str, seconds: Seconds, then: Callable[[], None]) -> None:
        """Run a job that takes so long, and call `then` at its end."""
        if self._free:
            self._free -= 1
            self._start(kind, seconds, then)
            return
        self._added += 1
        heapq.heappush(self._ready, (urgency, self._added, kind, seconds, then))

    def _start(self, kind: str, seconds: Seconds, then: Callable[[], None]) -> None:
        spent = seconds() if callable(seconds) else seconds
        self.busy[kind] += spent
        self._agenda.after(spent, self._end, then)

    def _end(self, then: Callable[[], None]) -> None:
        # What follows from the job is ready before the core looks for its next.
        then()
        if self._ready:
            _, _, kind, seconds, following = heapq.heappop(self._ready)
            self._start(kind, seconds, following)
        else:
            self._free += 1


class VirtualLink:
    """One direction of a network interface, or a processor that takes things in turn: first come, first served.

    rate: bytes a second
    busy: seconds spent
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.busy = 0.0
        self._free_at = 0.0

    def carry(self, now: float, amount: float) -> float:
        """Take `amount` after all that came before it; when it is through."""
        spent = amount / self.rate
        self.busy += spent
        self._free_at = max(now, self._free_at) + spent
        return self._free_at


def carry_over(now: float, amount: float, *links: VirtualLink) -> float:
    """When `amount` is through all of some links, which it passes at the same time: the slowest decides."""
    return max([now, *(link.carry(now, amount) for link in links)])

"""TrialBudget: CPU seconds that trials of slower ways may cost in a run, all choices together."""

import threading
from collections.abc import Hashable

_MOST_SECONDS = 2.0
_SHARE = 0.01  # of the run


class TrialBudget:
    """At most 2 s and, where it is known how often work is repeated, 1 % of what it takes in the whole run. Any thread may ask and tell.

    repeats: how often each piece of work is done in the run, at least; None: it is not known
    """

    def __init__(self, repeats: int | None = None) -> None:
        self._repeats = repeats
        self._lock = threading.Lock()
        self._cost: dict[Hashable, float] = {}
        self._work: dict[Hashable, float] = {}

    def told(self, choice: Hashable, cost: float, work: float) -> None:
        """Seconds that the trials of a choice have cost so far, and the seconds of its pieces of work, each done once in the fastest way."""
        with self._lock:
            self._cost[choice], self._work[choice] = cost, work

    def affords(self, excess: float) -> bool:
        """Whether a trial that may take so many seconds longer than the work must fits what is left."""
        with self._lock:
            return sum(self._cost.values()) + excess <= self._most

    @property
    def is_spent(self) -> bool:
        """Whether trials have cost as much as they may."""
        with self._lock:
            return sum(self._cost.values()) > self._most

    @property
    def _most(self) -> float:
        if self._repeats is None:
            return _MOST_SECONDS
        return min(_MOST_SECONDS, _SHARE * self._repeats * sum(self._work.values()))

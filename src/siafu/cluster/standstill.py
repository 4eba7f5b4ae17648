"""Standstill: tells a cluster's run that waits from one in which nothing will ever happen again."""

from collections.abc import Collection, Mapping

from siafu.cluster.post.requests import StateTold
from siafu.pipeline.ids import Address


class Standstill:
    """Answers of all servers to two questions in a row.

    Letters arrive in order, so an answer comes after all that its server sent to the driver before, and a server
    that has an unacknowledged letter to another is busy. A run in which nobody is busy, twice, and no machine
    has handled an event in between, stands still.
    """

    def __init__(self) -> None:
        self.number = 0
        self._handled = -1
        self._told: dict[Address, StateTold] = {}
        self._before: Mapping[Address, StateTold] = {}

    def take(self, told: StateTold) -> None:
        """Take a server's answer; one to an earlier question is dropped."""
        if told.number == self.number:
            self._told[told.sender] = told

    def forget(self) -> None:
        """Something happened: answers so far say nothing."""
        self._told, self._before, self._handled = {}, {}, -1
        self.number += 1

    def ask(self, servers: Collection[Address], handled: int) -> list[str] | None:
        """Begin the next question; returns what waits at all servers if the run stands still, else None.

        servers: those that must answer
        handled: events that the run's machine has handled
        """
        now, before = self._told, self._before
        same = handled == self._handled and now.keys() == before.keys() == set(servers)
        still = same and all(_is_still(before[server], now[server]) for server in servers)
        self._told, self._before, self._handled = {}, now, handled
        self.number += 1
        return [line for server in servers for line in now[server].waiting] if still else None


def _is_still(before: StateTold, now: StateTold) -> bool:
    same = before.handled == now.handled
    return same and not before.busy and not now.busy

"""EpochCounters: what servers have counted until an epoch's end, as far as that epoch may have to be done again."""

from collections.abc import Mapping
from typing import Any

from siafu.pipeline.ids import Address, Epoch
from siafu.runtime.counters.counting import added


class EpochCounters:
    """Counters of each server since it began, by the number of epochs that were done when it told them.

    closed: number of epochs that will not be done again
    """

    def __init__(self) -> None:
        self.closed = Epoch(0)
        self._told: dict[Epoch, dict[Address, Mapping[str, Any]]] = {}

    def tell(self, epochs: Epoch, server: Address, counters: Mapping[str, Any]) -> None:
        """Note a server's counters after so many epochs."""
        self._told.setdefault(epochs, {})[server] = counters

    def close(self, epochs: Epoch) -> None:
        """So many epochs will not be done again."""
        self.closed = epochs
        for earlier in [each for each in self._told if each < epochs]:
            del self._told[earlier]

    def lose(self, server: Address) -> Mapping[str, Any]:
        """Counters of a lost server at the end of the closed epochs. The one in its place counts from 0."""
        found = self._told.get(self.closed, {}).get(server, {})
        for told in self._told.values():
            told.pop(server, None)
        return found

    def total(self) -> dict[str, Any]:
        """Counters of all servers at the end of the closed epochs."""
        total: dict[str, Any] = {}
        for _, counters in sorted(self._told.get(self.closed, {}).items(), key=lambda each: str(each[0])):
            total = added(total, counters)
        return total

    def begin_again(self) -> dict[str, Any]:
        """`total`. From now on all count from 0."""
        total = self.total()
        self._told = {}
        return total

"""MemoryList: the arrays of a run with their bytes and lifetimes, and what they come to at once."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Lifetime(StrEnum):
    """When an array is in memory."""

    RUN = "whole run"
    FOLDING = "while constants are computed"
    MAKING = "while servers are made"
    SERVERS = "from the servers' making on"
    EPOCHS = "all epochs"
    TASK = "while tasks of an epoch run"


_MOMENTS: dict[str, tuple[Lifetime, ...]] = {
    "constants are computed": (Lifetime.RUN, Lifetime.FOLDING, Lifetime.MAKING),
    "servers are made": (Lifetime.RUN, Lifetime.MAKING, Lifetime.SERVERS),
    "epochs run": (Lifetime.RUN, Lifetime.SERVERS, Lifetime.EPOCHS, Lifetime.TASK),
}


@dataclass(frozen=True, slots=True)
class Allocation:
    """One array, or several of one kind.

    bytes:  that are written to; untouched parts of a table take no memory
    mapped: a file's pages, which the system drops when memory is short: they count nothing in a peak
    """

    name: str
    bytes: int
    lifetime: Lifetime
    purpose: str
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class MemoryList:
    """All of a run's arrays in one process.

    taken: bytes of them that the process holds already
    """

    allocations: tuple[Allocation, ...]
    taken: int = 0

    @classmethod
    def of(cls, allocations: Iterable[Allocation], taken: int = 0) -> "MemoryList":
        """Those that take any memory, the largest first; of equal names, purposes and lifetimes the sum."""
        sums: dict[tuple[str, Lifetime, str, bool], int] = defaultdict(int)
        for each in allocations:
            sums[each.name, each.lifetime, each.purpose, each.mapped] += each.bytes
        found = [
            Allocation(name, size, lifetime, purpose, mapped)
            for (name, lifetime, purpose, mapped), size in sums.items()
            if size > 0
        ]
        return cls(tuple(sorted(found, key=lambda each: -each.bytes)), taken)

    @property
    def total(self) -> int:
        """Bytes of all arrays, whether they are there at the same time or not; without mapped files."""
        return sum(each.bytes for each in self.allocations if not each.mapped)

    @property
    def mapped(self) -> int:
        """Bytes of mapped files."""
        return sum(each.bytes for each in self.allocations if each.mapped)

    @property
    def peak(self) -> int:
        """The most bytes at once, without mapped files."""
        return max(self._at(moment) for moment in _MOMENTS)

    @property
    def peak_when(self) -> str:
        """When that is, such as "epochs run"."""
        return max(_MOMENTS, key=self._at)

    def bytes_of(self, *lifetimes: Lifetime) -> int:
        """Bytes of the arrays with these lifetimes, without mapped files."""
        return sum(each.bytes for each in self.allocations if each.lifetime in lifetimes and not each.mapped)

    def as_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        arrays = [
            {
                "name": each.name,
                "bytes": each.bytes,
                "lifetime": str(each.lifetime),
                "purpose": each.purpose,
                "mapped": each.mapped,
            }
            for each in self.allocations
        ]
        return {
            "arrays": arrays,
            "total_bytes": self.total,
            "mapped_bytes": self.mapped,
            "peak_bytes": self.peak,
            "peak_when": self.peak_when,
        }

    def _at(self, moment: str) -> int:
        return self.bytes_of(*_MOMENTS[moment])

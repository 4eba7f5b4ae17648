"""Bills: what the Lambdas of all graph servers did, and what that costs."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from siafu.pipeline.ids import Address
from siafu.runtime.counting import added


class Bills:
    """The last that each server told of its Lambdas, in each of its lives.

    When a run goes back, nothing of it is taken back: it was paid for. What a server that was lost had not told is not
    known.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[Address, int], Mapping[str, Any]] = {}

    def note(self, server: Address, life: int, usage: Mapping[str, Any]) -> None:
        """From the beginning of that life until now."""
        self._told[server, life] = usage

    def counters(self) -> dict[str, Any]:
        """As they stand in the summary; empty where there were no Lambdas."""
        total: dict[str, Any] = {}
        for usage in self._told.values():
            total = _beside(total, usage)
        return {"lambda": total} if total else {}


def _beside(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two servers' Lambdas at the same time: their numbers, epoch by epoch, are added, not put one after the other."""
    both = added(one, other)
    if "counts" in both:
        counts = one.get("counts", []), other.get("counts", [])
        both["counts"] = [sum(each) for each in zip_longest(*counts, fillvalue=0)]
    return both

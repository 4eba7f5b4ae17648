"""Bills: work and cost of the Lambdas of all graph servers."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from siafu.pipeline.ids import Address
from siafu.runtime.counters.counting import added


class Bills:
    """The last report of each server about its Lambdas, in each of its lives.

    When a run goes back, its bills stay: Lambdas were paid for. Work that a lost server had not reported is not known: where
    epochs are closed, that of the open one.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[Address, int], Mapping[str, Any]] = {}

    def note(self, server: Address, life: int, usage: Mapping[str, Any]) -> None:
        """Note a server's report, from the beginning of its life until now."""
        self._told[server, life] = usage

    def counters(self) -> dict[str, Any]:
        """Counters for the summary; empty where there were no Lambdas."""
        total: dict[str, Any] = {}
        for usage in self._told.values():
            total = _beside(total, usage)
        return {"lambda": total} if total else {}


def _beside(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the reports of two servers whose Lambdas ran at the same time: their numbers are added epoch by epoch, not joined."""
    both = added(one, other)
    if "counts" in both:
        counts = one.get("counts", []), other.get("counts", [])
        both["counts"] = [sum(each) for each in zip_longest(*counts, fillvalue=0)]
    return both

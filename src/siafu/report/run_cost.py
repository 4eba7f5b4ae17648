"""RunCost: a run's dollars, epoch by epoch and at its end."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from siafu.base.hardware.machine import cpu_id
from siafu.base.threads import thread_count
from siafu.cost.elsewhere import Spent, elsewhere
from siafu.cost.money import dollars
from siafu.cost.run_prices import RunPrices
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress


class RunCost:
    """Looks at the clock from when it is made; `history` is the run's own, of all its sessions.

    before: seconds of earlier sessions
    """

    def __init__(self, prices: RunPrices, history: list[EpochMetrics], before: float = 0.0) -> None:
        self._prices, self._history, self._before = prices, history, before
        self._began = time.perf_counter()
        self._prepared = 0.0  # seconds from there to the first epoch

    @property
    def seconds(self) -> float:
        """Since the run began, pauses between its sessions left out."""
        return self._before + time.perf_counter() - self._began

    def note(self) -> EpochMetrics:
        """The last epoch, with what the run has cost by its end, if anybody wants to know."""
        if self._prices.wanted:
            self._history[-1] = replace(
                self._history[-1], usd=self._prices.usd(self.seconds, self._gb_seconds)
            )
        return self._history[-1]

    def tell(self, progress: Progress) -> None:
        """Epochs begin: have lines of progress tell dollars from now on, if anybody wants to know."""
        self._prepared = time.perf_counter() - self._began
        if self._prices.wanted:
            progress.priced(self.told)

    def told(self, share: float) -> str:
        """Dollars so far, and at the end if epochs go on as the first `share` of them did; for a line of progress."""
        seconds, used = self.seconds, self._gb_seconds
        whole = self._prepared + (seconds - self._prepared) / share
        now, end = self._prices.usd(seconds, used), self._prices.usd(whole, used / share)
        on = f" on {self._prices.fleet.rental}" if self._prices.assumed else ""
        return f"{dollars(now)} of {dollars(end)}{on}"

    def bill(self, seconds: float, peak_rss_bytes: int, used: Mapping[str, Any]) -> dict[str, Any]:
        """The bill of the whole run, with its cost elsewhere; as JSON has it.

        used: what its summary says under "lambda"
        """
        prices = self._prices
        book, fleet = prices.book, prices.fleet
        alternatives = elsewhere(
            self._spent(seconds, peak_rss_bytes), book.processor(cpu_id()), book, fleet.rental.instance.name
        )
        return prices.bill(seconds, used) | {"alternatives": alternatives}

    @property
    def _gb_seconds(self) -> float:
        """GB-seconds of Lambdas whose invocations have ended; the others are known at the end, and requests too."""
        return float(sum((each.lambdas or {}).get("gb_seconds", 0.0) for each in self._history))

    def _spent(self, seconds: float, peak_rss_bytes: int) -> Spent:
        busy: Counter[str] = Counter()
        for epoch in self._history:
            busy.update(epoch.busy_seconds or {})
        gathers = sum(taken for kind, taken in busy.items() if _is_gather(kind))
        machines = self._prices.fleet.servers
        others = sum(busy.values()) - gathers
        return Spent(seconds, thread_count() * machines, machines, gathers, others, peak_rss_bytes)


def _is_gather(kind: str) -> bool:
    """Whether a kind of task goes over edges: "train G1", "evaluate ∇G2"."""
    return kind.split()[-1].lstrip("∇").startswith("G")

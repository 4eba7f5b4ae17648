"""Activity of graph servers on its way to the driver: numbers in JSON, spans and latencies as tensors."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from siafu.base.activity import About, Activity, Span, Taken
from siafu.pipeline.ids import Address
from siafu.runtime.counters.counting import added
from siafu.runtime.happenings import EpochActivity
from siafu.tables import DiskTraffic
from siafu.wire.tensors import Array

if TYPE_CHECKING:
    from siafu.runtime.lambda_tasks import LambdaTasks

_THREADS, _LAMBDAS = "threads", "lambdas"


class ServerActivity:
    """A graph server's side: activity of its threads and its Lambdas since its last report.

    threads: None: it shares them with other servers, and the run has their activity
    disk:    traffic of its scratch files; None: it has none, or another server tells of them
    """

    def __init__(
        self,
        threads: Activity | None,
        lambdas: "LambdaTasks | None",
        disk: DiskTraffic | None = None,
    ) -> None:
        self._threads, self._lambdas, self._disk = threads, lambdas, disk
        self._staleness: Counter[int] = Counter()
        self._scattered = 0

    @property
    def shares_threads(self) -> bool:
        """Whether its threads are those of the run's own process."""
        return self._threads is None

    def keep_spans(self) -> None:
        """Report every task from now on."""
        if self._threads is not None:
            self._threads.keep_spans()
        if self._lambdas is not None:
            self._lambdas.keep_spans()

    def forget(self) -> None:
        """The run begins anew."""
        if self._threads is not None:
            self._threads.forget()
        self._staleness, self._scattered = Counter(), 0

    def told(
        self, epoch: int, staleness: Counter[int], scattered: int, counters: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Array]]:
        """The report, as JSON and tensors. `epoch` has ended; staleness and scattered count since the run began.

        counters: all that the server has counted since the run began; None: that was not the end of a training
        """
        entered, sent = staleness - self._staleness, scattered - self._scattered
        self._staleness, self._scattered = Counter(staleness), scattered
        told: dict[str, Any] = {
            "staleness": {str(lead): count for lead, count in sorted(entered.items())},
            "bytes_scattered": sent,
            "epochs": epoch + 1,
            "counters": counters,
        }
        if self._disk is not None:
            told["disk"] = self._disk.drain()
        tensors: dict[str, Array] = {}
        if self._threads is not None:
            told[_THREADS], tensors = _said(*self._threads.drain(epoch), _THREADS)
        if self._lambdas is not None:
            done = self._lambdas.activity(epoch)
            told["counts"] = dict(done.counts)
            told[_LAMBDAS], more = _said(done.seconds, done.taken, _LAMBDAS)
            tensors |= more | {"latencies": np.array(done.latencies, np.float64)}
        return json.dumps(told), tensors


class RunActivity:
    """The run's side: reports of servers, until an epoch is recorded.

    shared: activity of threads that all servers share; None: each server has its own, and reports it
    """

    def __init__(self, spans_kept: int = 0, shared: Activity | None = None) -> None:
        self._kept, self._shared = spans_kept, shared
        self.forget()

    def forget(self) -> None:
        """The run begins anew."""
        self._activities: dict[tuple[str, Address], Activity] = {}
        self._since: dict[str, Any] = {}
        self._counts: dict[Address, Mapping[str, float]] = {}
        self._latencies: list[float] = []

    def hear(
        self, sender: Address, told: str, tensors: Mapping[str, Array]
    ) -> tuple[int, dict[str, Any]] | None:
        """Add a server's report; returns its counters after so many epochs, if a training has ended."""
        found = json.loads(told)
        told_of = ("staleness", "bytes_scattered", "disk")
        self._since = added(self._since, {name: found[name] for name in told_of if name in found})
        for where in (_THREADS, _LAMBDAS):
            if where in found:
                self._fill(where, sender, found[where], tensors)
        if "counts" in found:
            counts = found["counts"]
            before = self._counts.get(sender, {})
            self._counts[sender] = {**added(before, counts), "count": counts["count"]}
            self._latencies += tensors["latencies"].tolist()
        return None if found["counters"] is None else (found["epochs"], found["counters"])

    def take(self, epoch: int) -> EpochActivity:
        """Activity of an epoch that is recorded now."""
        taken = {
            where: tuple(each.take(epoch) for (of, _), each in self._activities.items() if of == where)
            for where in (_THREADS, _LAMBDAS)
        }
        if self._shared is not None:
            taken[_THREADS] = (self._shared.take(epoch),)
        counts: dict[str, float] = {}
        for each in self._counts.values():
            counts = added(counts, each)
        activity = EpochActivity(
            taken[_THREADS],
            taken[_LAMBDAS],
            self._since.get("staleness", {}),
            self._since.get("bytes_scattered", 0),
            counts or None,
            tuple(self._latencies),
            self._since.get("disk", {}),
        )
        self._since, self._latencies = {}, []
        self._counts = {server: {"count": each["count"]} for server, each in self._counts.items()}
        return activity

    def _fill(self, where: str, sender: Address, said: dict[str, Any], tensors: Mapping[str, Array]) -> None:
        activity = self._activities.setdefault((where, sender), Activity(self._kept))
        activity.zero = said["zero"]
        busy = {int(epoch): kinds for epoch, kinds in said["seconds"].items()}
        spans = _unpacked(str(sender), where, said["kinds"], tensors) if self._kept else iter(())
        activity.fill(busy, spans, said["dropped"])


def _said(
    seconds: Mapping[int, Mapping[str, float]], taken: Taken, where: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Seconds by epoch, and spans: an evaluation may end after the next epoch's training has reported."""
    kinds, tensors = _packed(taken.spans, where)
    return {"seconds": seconds, "dropped": taken.dropped, "zero": taken.zero, "kinds": kinds}, tensors


def _packed(spans: tuple[Span, ...], where: str) -> tuple[list[str], dict[str, Array]]:
    """Kinds of tasks, and the spans as numbers."""
    if not spans:
        return [], {}
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys(span.kind for span in spans))}
    times = np.array([(span.began, span.ended) for span in spans], np.float64)
    numbers = np.array(
        [
            (kinds[span.kind], span.track, span.about.epoch, _or(span.about.interval), span.moved)
            for span in spans
        ],
        np.int64,
    )
    return list(kinds), {f"{where}/times": times, f"{where}/numbers": numbers}


def _unpacked(server: str, where: str, kinds: list[str], tensors: Mapping[str, Array]) -> Iterator[Span]:
    if not kinds:
        return
    times, numbers = tensors[f"{where}/times"].tolist(), tensors[f"{where}/numbers"].tolist()
    for (began, ended), (kind, track, epoch, interval, moved) in zip(times, numbers, strict=True):
        about = About(server, epoch, None if interval < 0 else interval)
        yield Span(about, kinds[kind], track, began, ended, moved)


def _or(interval: int | None) -> int:
    return -1 if interval is None else interval

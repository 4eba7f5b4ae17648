"""Activity: seconds of a server's tasks, and when and on which thread each ran, kept by epoch until they are taken."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

SPANS_KEPT = 1 << 14
"""Most spans kept of a server: the latest. An epoch of 64 intervals has some 600."""

_NO_EPOCH = -1


class About(NamedTuple):
    """Server, epoch and interval of a piece of work.

    server:   the server's name, like "graph server 0"
    epoch:    counted from 0
    interval: None: the work belongs to no interval
    """

    server: str
    epoch: int
    interval: int | None = None


class Span(NamedTuple):
    """One piece of work: what, where and when.

    kind:   kind of work, by which seconds are added up, like "train ∇G1"
    track:  the thread that did it, or the Lambda's slot: work on one track never overlaps
    began, ended: seconds, by the clock of the process that did it
    moved:  bytes sent, or received and sent
    """

    about: About
    kind: str
    track: int
    began: float
    ended: float
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Work of some epochs.

    busy_seconds: by kind
    spans:   in the order in which they ended; empty where none are kept
    dropped: number of spans that were lost for lack of room
    zero:    what to add to their times for seconds since 1970
    """

    busy_seconds: Mapping[str, float] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    dropped: int = 0
    zero: float = 0.0


class Activity:
    """Record of work. Any thread may add to it, and any may take from it.

    busy_seconds: of all work so far, by kind
    zero:         what to add to times for seconds since 1970
    """

    def __init__(self, spans_kept: int = 0) -> None:
        self.busy_seconds: dict[str, float] = {}
        self._kept = spans_kept
        self._busy: defaultdict[int, dict[str, float]] = defaultdict(dict)
        self._spans: dict[str, deque[Span]] = {}
        self._dropped = 0
        self._lock = threading.Lock()
        self.zero = time.time() - time.perf_counter()

    def keep_spans(self, most: int = SPANS_KEPT) -> None:
        """Keep spans from now on: the last `most` of each server; 0: none."""
        with self._lock:
            self._kept = most
            self._spans = {}

    def note(
        self,
        about: About | None,
        kind: str,
        track: int,
        began: float,
        ended: float,
        moved: int = 0,
        compiling: float = 0.0,
    ) -> None:
        """Record work. Of work that belongs to no epoch (None) only the seconds are kept, and taken with the next epoch.

        compiling: seconds of it that something was compiled, which do not count
        """
        spent = max(0.0, ended - began - compiling)
        with self._lock:
            self.busy_seconds[kind] = self.busy_seconds.get(kind, 0.0) + spent
            busy = self._busy[_NO_EPOCH if about is None else about.epoch]
            busy[kind] = busy.get(kind, 0.0) + spent
            if self._kept and about is not None:
                self._keep(Span(about, kind, track, began, ended, moved))

    def take(self, epoch: int) -> Taken:
        """Take the work of `epoch` and of those before it that was not taken yet."""
        with self._lock:
            busy: dict[str, float] = {}
            for each in sorted(number for number in self._busy if number <= epoch):
                add_seconds(busy, self._busy.pop(each))
            return self._take_spans(epoch, busy)

    def drain(self, epoch: int) -> tuple[dict[int, dict[str, float]], Taken]:
        """Take the seconds of all work so far, by epoch and kind, and the spans that `take` would."""
        with self._lock:
            busy = dict(self._busy)
            self._busy.clear()
            return busy, self._take_spans(epoch, {})

    def fill(self, busy: Mapping[int, Mapping[str, float]], spans: Iterable[Span], dropped: int) -> None:
        """Add the work that another process reports."""
        with self._lock:
            for epoch, kinds in busy.items():
                add_seconds(self._busy[epoch], kinds)
                add_seconds(self.busy_seconds, kinds)
            for span in spans:
                self._keep(span)
            self._dropped += dropped

    def forget(self) -> None:
        """Forget all work so far: the run begins anew."""
        with self._lock:
            self._busy.clear()
            self._spans.clear()

    def _take_spans(self, epoch: int, busy: dict[str, float]) -> Taken:
        spans: list[Span] = []
        for server, kept in self._spans.items():
            spans += (span for span in kept if span.about.epoch <= epoch)
            rest = (span for span in kept if span.about.epoch > epoch)
            self._spans[server] = deque(rest, maxlen=self._kept)
        dropped, self._dropped = self._dropped, 0
        return Taken(busy, tuple(spans), dropped, self.zero)

    def _keep(self, span: Span) -> None:
        server = span.about.server
        kept = self._spans.get(server)
        if kept is None:
            kept = self._spans[server] = deque(maxlen=self._kept)
        if len(kept) == self._kept:
            self._dropped += 1
        kept.append(span)


def add_seconds(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add `more` to `total`, kind by kind."""
    for kind, seconds in more.items():
        total[kind] = total.get(kind, 0.0) + seconds


def together(taken: Iterable[Taken]) -> dict[str, float]:
    """The seconds of several servers, by kind."""
    total: dict[str, float] = {}
    for each in taken:
        add_seconds(total, each.busy_seconds)
    return total

"""Showing a run while it lasts: a few lines that redraw themselves on a terminal, plain ones elsewhere."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from siafu.base.compiling import told_of_compiling
from siafu.objective.metric import ACCURACY, Metric
from siafu.report.files.metrics import EpochMetrics, hidden_share

_PLAIN_SECONDS = 10.0  # between lines where there is no terminal to redraw
_RECENT = 0.2  # what the latest epoch counts for in the time that epochs are said to take


class Progress:
    """Hears how a run proceeds. This one does nothing: inherit from it to listen."""

    def prepared(self, lines: list[str], reasons: list[str]) -> None:
        """Hear what will run, what it needs, and why it was decided so."""

    def priced(self, told: Callable[[float], str]) -> None:
        """It is known what the run costs; told: by the share that is done, dollars so far and at the end, in words."""

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        """An epoch is over, and this is what it measured."""

    def rewound(self, epochs: int, lost: str) -> None:
        """A server was lost and replaced: the run goes on after so many epochs."""

    def stopping(self, number: signal.Signals) -> None:
        """A signal came: the run saves itself and stops at the end of an epoch, at most two later."""

    def troubled(self, what: str) -> None:
        """Something went wrong that the run can do without."""


class ProgressLine(Progress):
    """Progress on stderr, for people. Use it as a context manager.

    verbose: with the reasons
    """

    def __init__(self, epochs: int, *, metric: Metric = ACCURACY, verbose: bool = False) -> None:
        self._epochs = epochs
        self._verbose = verbose
        self._metric = metric
        self._told = time.monotonic()
        self._best: float | None = None
        self._pace: float | None = None
        self._lead = 0
        self._price: Callable[[float], str] | None = None
        self._compiled: set[str] = set()
        self._told_of_compiling = told_of_compiling(self._compiling)
        self._live = None
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)

    def prepared(self, lines: list[str], reasons: list[str]) -> None:
        for line in [*lines, *(reasons if self._verbose else [])]:
            self._print(line)

    def priced(self, told: Callable[[float], str]) -> None:
        self._price = told

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        self._note_best(metrics.val_accuracy)
        self._lead = max([self._lead, *map(int, metrics.staleness or ())])
        self._note_pace(metrics)
        if self._live is not None:
            self._live.update(self._block(metrics))
            return
        now = time.monotonic()
        if metrics.epoch == 1 or now - self._told >= _PLAIN_SECONDS:
            self._told = now
            _say(self._line(metrics).plain)

    def rewound(self, epochs: int, lost: str) -> None:
        self._print(lost)

    def stopping(self, number: signal.Signals) -> None:
        self._print(f"{number.name}: saving at the end of an epoch; once more to stop at once")

    def troubled(self, what: str) -> None:
        self._print(what)

    def _compiling(self, what: str) -> None:
        if self._live is not None:
            self._live.update(Text(f"compiling {what} …", style="dim"))
        elif what not in self._compiled:
            _say(f"compiling {what}: once, the cache keeps it")
        self._compiled.add(what)

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, highlight=False, soft_wrap=True)
        else:
            _say(line)

    def __enter__(self) -> "ProgressLine":
        if self._live is not None:
            self._live.start()
        self._told_of_compiling.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._told_of_compiling.__exit__(None, None, None)
        if self._live is not None:
            self._live.stop()

    def _note_best(self, value: float | None) -> None:
        merit = self._metric.merit
        if value is not None and (self._best is None or merit(value) > merit(self._best)):
            self._best = value

    def _note_pace(self, metrics: EpochMetrics) -> None:
        # The first epoch warms up: the second is the first that says how it will go on.
        usual = None if metrics.epoch <= 2 else self._pace
        spent = _spent(metrics)
        self._pace = spent if usual is None else (1 - _RECENT) * usual + _RECENT * spent

    def _line(self, metrics: EpochMetrics) -> Text:
        """All in one line."""
        line = Text("epoch ", no_wrap=True, overflow="ellipsis")
        line.append(f"{metrics.epoch}/{self._epochs}", style="bold")
        line.append("  ").append_text(self._learnt(metrics))
        for part in (duration(_spent(metrics)), *self._done(metrics)):
            line.append(f"  {part}", style="dim")
        return line

    def _block(self, metrics: EpochMetrics) -> Group:
        """A bar and the time left, what was learnt, what was done and what it costs."""
        pace = self._pace or 0.0
        left = max(0, self._epochs - metrics.epoch) * pace
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(
            Text.assemble("epoch ", (f"{metrics.epoch}/{self._epochs}", "bold")),
            ProgressBar(total=self._epochs, completed=metrics.epoch),
            Text(f"{duration(pace)} an epoch, {duration(left)} left", style="dim"),
        )
        learnt = self._learnt(metrics)
        for split, score in (("training", metrics.train_accuracy), ("test", metrics.test_accuracy)):
            if metrics.val_accuracy is not None and score is not None:
                learnt.append(f"  {split} {self._metric.told(score)}", style="dim")
        done = Text("  ".join(self._done(metrics)), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(bar, learnt, *([done] if done.plain else []))

    def _learnt(self, metrics: EpochMetrics) -> Text:
        line = Text(f"loss {metrics.train_loss:.4f}", no_wrap=True, overflow="ellipsis")
        metric = self._metric
        if metrics.val_accuracy is not None:
            line.append(f"  validation {metric.words} {metric.told(metrics.val_accuracy)}", style="green")
            if self._best is not None:
                line.append(f" (best {metric.told(self._best)})")
        elif metrics.train_accuracy is not None:
            line.append(f"  training {metric.words} {metric.told(metrics.train_accuracy)}", style="green")
        return line

    def _done(self, metrics: EpochMetrics) -> list[str]:
        """Staleness, disk traffic, Lambdas and dollars, where there are any."""
        found = []
        if self._lead:
            found.append(f"staleness up to {self._lead}")
        if metrics.bytes_read is not None:
            found.append(_disk(metrics))
        if metrics.lambdas is not None:
            found.append(_lambdas(metrics.lambdas))
        if self._price is not None:
            found.append(self._price(metrics.epoch / max(self._epochs, metrics.epoch)))
        return found


def _spent(metrics: EpochMetrics) -> float:
    return metrics.seconds + (metrics.evaluate_seconds or 0.0)


def _disk(metrics: EpochMetrics) -> str:
    """Traffic of scratch files, in words."""
    read, written = (
        count / max(_spent(metrics), 1e-9) for count in (metrics.bytes_read or 0, metrics.bytes_written or 0)
    )
    found = f"disk {read / 1e6:,.0f} MB/s read, {written / 1e6:,.0f} MB/s written"
    hidden = hidden_share(metrics.disk_busy_seconds or 0.0, metrics.disk_wait_seconds or 0.0)
    return found if hidden is None else f"{found}, {hidden:.0%} hidden"


def _lambdas(did: Mapping[str, Any]) -> str:
    many = "1 Lambda" if did["count"] == 1 else f"{did['count']:,} Lambdas"
    latency = did["latency_ms"].get("p50")
    return many if latency is None else f"{many}, {duration(latency / 1000)} a task"


def duration(seconds: float) -> str:
    """A time as people write it."""
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

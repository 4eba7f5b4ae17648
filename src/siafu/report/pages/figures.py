"""Figures of a run, in words: for reports, comparisons and cards."""

import statistics
from collections.abc import Mapping
from typing import Any

from siafu.cost.run_prices import wanted
from siafu.report import words
from siafu.report.files.metrics import hidden_share
from siafu.report.files.run_record import RunRecord


def figures(run: RunRecord, metric: str | None = None) -> list[tuple[str, str]]:
    """Names and values; `words.NOTHING` for those that are not known.

    metric: the name of its scores; None: its own metric's
    """
    metric, best, last, summary = metric or run.metric.words, run.best, run.history[-1], run.summary
    # The first epoch warms up.
    epoch = statistics.median(each.seconds for each in run.history[1:] or run.history)
    cost, value = (
        words.amount(summary.get(name)) if wanted(summary.get("cost")) else None
        for name in ("cost_usd", "value")
    )
    return [
        ("dataset", str(run.section("graph").get("name", words.NOTHING))),
        ("model", str(run.section("model").get("name", words.NOTHING))),
        ("mode", str(run.section("training").get("mode", words.NOTHING))),
        ("state", "finished" if run.finished else "has not finished"),
        ("epochs", words.count(len(run.history))),
        ("best epoch", words.count(best.epoch if best else None)),
        (f"test {metric}", words.measured(best.test_accuracy if best else None, run.metric)),
        (f"validation {metric}", words.measured(best.val_accuracy if best else None, run.metric)),
        (f"training {metric}", words.measured(best.train_accuracy if best else None, run.metric)),
        ("loss at the end", words.number(last.train_loss)),
        ("epoch time", words.seconds(epoch)),
        ("total time", words.seconds(words.amount(summary.get("seconds_total")))),
        ("peak memory", words.size(words.amount(summary.get("peak_rss_bytes")))),
        ("staleness, at most", words.count(words.amount(summary.get("max_staleness_seen")))),
        ("rows sent between servers", words.size(words.amount(summary.get("bytes_scattered")))),
        *_scratch(summary),
        ("cost", words.usd(last.usd if cost is None else cost)),
        ("value, 1 / (seconds × dollars)", words.short(value)),
    ]


def _scratch(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Traffic of scratch files; nothing where no table was on disk."""
    if not summary.get("bytes_written"):
        return []
    moved = [
        (f"{what} scratch files", words.size(words.amount(summary.get(name))))
        for what, name in (("read from", "bytes_read"), ("written to", "bytes_written"))
    ]
    return moved + _disk_time(summary)


def _disk_time(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How busy the disk and computing were, and how much of the disk's time was hidden; nothing for older runs."""
    busy, waited, total = (
        words.amount(summary.get(name))
        for name in ("disk_busy_seconds", "disk_wait_seconds", "seconds_total")
    )
    if busy is None or waited is None or not total or (hidden := hidden_share(busy, waited)) is None:
        return []
    return [
        ("disk busy", f"{min(1.0, busy / total):.0%} of the run"),
        ("computing waited for the disk", f"{min(1.0, waited / total):.0%} of the run"),
        ("disk hidden behind computing", f"{hidden:.0%} of its time"),
    ]

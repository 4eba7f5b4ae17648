"""Runs side by side: what differs in what was asked for, and in what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from siafu.report import words
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_record import RunRecord
from siafu.report.flat import flat
from siafu.report.pages.markup import Html, join, page, section, table, text
from siafu.report.pages.run_report import median_seconds

_CURVES: tuple[tuple[str, str, str, str], ...] = (
    ("loss", "Training loss", "number", "train_loss"),
    ("validation", "Validation accuracy", "percent", "val_accuracy"),
    ("test", "Test accuracy", "percent", "test_accuracy"),
    ("seconds", "Time of an epoch", "seconds", "seconds"),
    ("dollars", "Dollars so far", "usd", "usd"),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tables with a column for each run.

    names:   of the runs, each different
    results: what came of them; a row is a name and a cell for each run
    settings: what was asked for and is not the same for all
    """

    names: list[str]
    results: list[tuple[str, list[str]]]
    settings: list[tuple[str, list[str]]]


def compare(runs: Sequence[RunRecord]) -> Comparison:
    return Comparison(_names(runs), _results(runs), _settings(runs))


def comparison_page(runs: Sequence[RunRecord]) -> str:
    """One HTML file that needs no network."""
    found = compare(runs)
    body = join(
        part
        for part in (
            Html(f"<h1>{text(len(runs))} runs</h1>"),
            _table("What came of them", found.names, found.results),
            section("Epoch by epoch", Html('<div id="curves" class="charts"></div>')),
            section(
                "What was asked for",
                _table("Settings that are not the same for all", found.names, found.settings)
                or text("The same of all of them."),
            ),
        )
        if part
    )
    return page(f"{len(runs)} runs – Siafu", body, {"charts": _charts(runs, found.names)}, "compare.js")


def _table(caption: str, names: list[str], rows: list[tuple[str, list[str]]]) -> Html:
    return table(caption, ("", *names), [(name, *cells) for name, cells in rows])


def _names(runs: Sequence[RunRecord]) -> list[str]:
    """Their directories' names; of namesakes the paths."""
    names = [run.name for run in runs]
    paths = [str(run.path).encode("utf-8", "surrogateescape").decode("utf-8", "replace") for run in runs]
    return [path if names.count(name) > 1 else name for name, path in zip(names, paths, strict=True)]


def _results(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    metric = runs[0].metric if len({run.metric for run in runs}) == 1 else "score"

    def best(field: str) -> Callable[[RunRecord], str]:
        return lambda run: words.percent(getattr(run.best, field, None))

    def summed(field: str, say: Callable[[Any], str]) -> Callable[[RunRecord], str]:
        return lambda run: say(_number(run.summary.get(field)))

    rows: list[tuple[str, Callable[[RunRecord], str]]] = [
        ("dataset", lambda run: str(run.section("graph").get("name", words.NOTHING))),
        ("model", lambda run: str(run.section("model").get("name", words.NOTHING))),
        ("state", lambda run: "finished" if run.finished else "has not finished"),
        ("epochs", lambda run: words.count(len(run.history))),
        ("best epoch", lambda run: words.count(run.best.epoch if run.best else None)),
        (f"test {metric}", best("test_accuracy")),
        (f"validation {metric}", best("val_accuracy")),
        (f"training {metric}", best("train_accuracy")),
        ("loss at the end", lambda run: words.number(run.history[-1].train_loss)),
        ("an epoch takes", lambda run: words.seconds(median_seconds(run))),
        ("in all", summed("seconds_total", words.seconds)),
        ("memory, at most", summed("peak_rss_bytes", words.size)),
        ("staleness, at most", summed("max_staleness_seen", words.count)),
        ("rows sent between servers", summed("bytes_scattered", words.size)),
        ("cost", summed("cost_usd", words.usd)),
        ("value, 1 / (seconds × dollars)", summed("value", _short)),
    ]
    told = [(name, [say(run) for run in runs]) for name, say in rows]
    return [(name, cells) for name, cells in told if set(cells) != {words.NOTHING}]


def _settings(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    asked = [flat(run.config) for run in runs]
    names = dict.fromkeys(name for each in asked for name in each)
    rows = [(name, [_said(each.get(name)) for each in asked]) for name in names]
    return [(name, cells) for name, cells in rows if len(set(cells)) > 1]


def _charts(runs: Sequence[RunRecord], names: list[str]) -> list[dict[str, Any]]:
    longest = max(len(run.history) for run in runs)
    charts = []
    for name, title, unit, field in _CURVES:
        series = [
            {"label": label, "values": _values(run.history, field, longest)}
            for label, run in zip(names, runs, strict=True)
        ]
        if any(value is not None for each in series for value in each["values"]):
            x = list(range(1, longest + 1))
            charts.append({"id": name, "title": title, "unit": unit, "x": x, "series": series})
    return charts


def _values(history: list[EpochMetrics], field: str, length: int) -> list[float | None]:
    values = [getattr(epoch, field) for epoch in history]
    return values + [None] * (length - len(values))


def _said(value: Any) -> str:
    return words.NOTHING if value is None else str(value)


def _short(value: float | None) -> str:
    return words.NOTHING if value is None else f"{value:.4g}"


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None

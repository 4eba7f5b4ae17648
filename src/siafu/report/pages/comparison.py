"""Runs side by side: differences in their settings and in their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from siafu.report import words
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_record import RunRecord
from siafu.report.flat import flat
from siafu.report.pages.figures import figures
from siafu.report.pages.markup import Html, join, page, section, table, text

_OF_SEVERAL = "score"  # what runs with different metrics are compared by


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tables with a column for each run.

    names:   of the runs, each different
    results: a row is a name and a cell for each run
    settings: those that are not the same for all
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
            _table("Results", found.names, found.results),
            section("Epoch by epoch", Html('<div id="curves" class="charts"></div>')),
            section(
                "Settings",
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
    metric = _metric_words(runs)
    every = [figures(run, metric) for run in runs]
    rows = [(cells[0][0], [value for _, value in cells]) for cells in zip(*every, strict=True)]
    return [(name, cells) for name, cells in rows if set(cells) != {words.NOTHING}]


def _settings(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    asked = [{name: value for name, value in flat(run.config).items() if value is not None} for run in runs]
    names = dict.fromkeys(name for each in asked for name in each)
    rows = [(name, [str(each.get(name, words.NOTHING)) for each in asked]) for name in names]
    return [(name, cells) for name, cells in rows if len(set(cells)) > 1]


def _metric_words(runs: Sequence[RunRecord]) -> str:
    found = {run.metric.words for run in runs}
    return found.pop() if len(found) == 1 else _OF_SEVERAL


def _curves(runs: Sequence[RunRecord]) -> list[tuple[str, str, str, str]]:
    """Curves to draw: an id, a title, a unit and a field of each."""
    metric = _metric_words(runs)
    unit = "percent" if all(run.metric.is_share for run in runs) else "number"
    return [
        ("loss", "Training loss", "number", "train_loss"),
        ("validation", f"Validation {metric}", unit, "val_accuracy"),
        ("test", f"Test {metric}", unit, "test_accuracy"),
        ("seconds", "Time of an epoch", "seconds", "seconds"),
        ("dollars", "Dollars so far", "usd", "usd"),
    ]


def _charts(runs: Sequence[RunRecord], names: list[str]) -> list[dict[str, Any]]:
    longest = max(len(run.history) for run in runs)
    charts = []
    for name, title, unit, field in _curves(runs):
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

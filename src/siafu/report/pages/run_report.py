"""The report of a run: one HTML file that needs no network."""

import json
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from siafu.report import words
from siafu.report.files.metrics import as_line
from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.run_record import RunRecord
from siafu.report.flat import flat
from siafu.report.pages.cost_section import cost_section
from siafu.report.pages.figures import figures
from siafu.report.pages.markup import Html, bar, columns, facts, join, page, section, table, text
from siafu.report.pages.trace_view import trace_view

_BUSY = " A task took less than that: the machine was busy when it was measured. Make the report again when nothing else runs."
_WORTH_A_RATIO = 5e-5  # seconds at best: a task of less is all overhead, thousands of times that


def run_report(run: RunRecord, limits: Mapping[str, float] | None = None) -> str:
    """The page.

    limits: the least seconds that tasks of a kind can take in an epoch on all threads together; None: they are not known
    """
    trace = trace_view(RunDirectory(run.path).trace_path)
    body = join(
        part
        for part in (
            Html(f"<h1>{text(run.name)}</h1>"),
            facts(
                (name[0].upper() + name[1:], value) for name, value in figures(run) if value != words.NOTHING
            ),
            section("Epoch by epoch", Html('<div id="curves" class="charts"></div>')),
            Html("") if run.config.get("kind") else _pipeline(trace),  # only siafu.train traces
            _kinds(run, limits),
            _histograms(run),
            _lambdas(run),
            cost_section(run.summary),
            _partition(run),
            _settings(run),
        )
        if part
    )
    data = {
        "epochs": [as_line(epoch) for epoch in run.history],
        "metric": {"words": run.metric.words, "unit": run.metric.unit},
        "trace": trace,
    }
    return page(f"{run.name} – Siafu", body, data, "report.js")


def _pipeline(trace: dict[str, Any] | None) -> Html:
    if trace is None:
        return section(
            "The pipeline",
            text("This run has no trace: train with --trace sampled or --trace full to have one."),
        )
    return section(
        "The pipeline",
        Html('<div id="gantt"></div>'),
        note="Every task of one epoch on the thread or Lambda that ran it. The run's trace.json opens in Perfetto, too.",
    )


def _kinds(run: RunRecord, limits: Mapping[str, float] | None) -> Html:
    busy, threads = run.busy_seconds(), _threads(run)
    if not busy:
        return Html("")
    spent = {kind: seconds / threads for kind, seconds in busy.items()}
    least = limits or {}
    most = max((*spent.values(), *(least.get(kind, 0.0) for kind in spent)))
    rows: list[tuple[object, ...]] = []
    beaten = False
    for kind, seconds in sorted(spent.items(), key=lambda each: -each[1]):
        limit = least.get(kind)
        drawn = bar(seconds / most, None if limit is None else limit / most)
        worth = 0.0 if limit is None or limit < _WORTH_A_RATIO else limit
        beaten = beaten or seconds < worth
        ratio = words.ratio(seconds, worth) if worth and seconds >= worth else words.NOTHING
        rows.append((kind, words.seconds(seconds), words.seconds(limit), ratio, drawn))
    rows.append(("in all", words.seconds(sum(spent.values())), "", "", ""))
    told = (
        "The line in a bar is what this machine can do at best: products at the measured peak of its cores, gathers at the "
        "measured bandwidth of its caches."
        if least
        else "What the machine can do at best is not known: make the report on the machine that trained."
    )
    return section(
        "Time by kind of task",
        table(
            f"Seconds of an epoch, shared out over {threads} threads: the mean of all epochs but the first",
            ("task", "takes", "at best", "ratio", ""),
            rows,
        ),
        note=f"T: a tensor phase, G: a gather over edges, ∇: the way back. {told}{_BUSY if beaten else ''}",
    )


def _threads(run: RunRecord) -> int:
    found = run.facts.get("environment")
    threads = found.get("threads") if isinstance(found, dict) else None
    return threads if isinstance(threads, int) and threads > 0 else 1


def _histograms(run: RunRecord) -> Html:
    staleness, ages = run.counted("staleness_histogram"), run.counted("row_age_histogram")
    ahead = "How far intervals were ahead of the slowest when they entered an epoch"
    older = "How many epochs older than the gather the rows were that it read"
    both = _histogram(ahead, "epochs ahead", staleness), _histogram(older, "epochs older", ages)
    return section("Staleness", columns(*both))


def _histogram(caption: str, what: str, counts: Mapping[str, int]) -> Html:
    total, most = max(1, sum(counts.values())), max(counts.values(), default=1) or 1
    ordered = sorted(counts.items(), key=lambda each: int(each[0]) if each[0].lstrip("-").isdigit() else 0)
    rows = [
        (key, words.count(value), f"{100 * value / total:.1f} %", bar(value / most)) for key, value in ordered
    ]
    return table(caption, (what, "times", "share", ""), rows)


def _lambdas(run: RunRecord) -> Html:
    used = run.summary.get("lambda")
    if not isinstance(used, dict) or not used.get("invocations"):
        return Html("")
    names = {
        "invocations": "Lambdas asked for",
        "requests": "invocations that are billed",
        "relaunched": "tasks given to another because one was late",
        "retried": "tasks given to another because one failed",
        "duplicates_dropped": "results that came twice",
        "billed_gb_seconds": "GB-seconds billed",
    }
    cost = run.summary.get("cost")
    if isinstance(cost, dict) and cost.get("lambda_compute_usd"):
        names["usd"] = "dollars, at list prices"
    rows = [(said, _plain(used[name])) for name, said in names.items() if name in used]
    latency = [epoch.lambdas.get("latency_ms") for epoch in run.history if epoch.lambdas]
    ranks = [
        (f"latency, median epoch's {rank}", words.seconds(_middle(latency, rank)))
        for rank in ("p50", "p90", "p99", "max")
    ]
    kinds = used.get("kinds")
    by_kind = [
        (
            kind,
            words.count(each.get("tasks")),
            *(words.size(each.get(f"bytes_{way}")) for way in ("received", "sent")),
        )
        for kind, each in (kinds.items() if isinstance(kinds, dict) else ())
        if isinstance(each, dict)
    ]
    known = [each for each in ranks if each[1] != words.NOTHING]
    together = table("In all", ("what", "how much"), [*rows, *known])
    apart = table("By kind of task", ("task", "tasks", "to Lambdas", "from Lambdas"), by_kind)
    return section("Lambdas", columns(together, apart))


def _middle(found: Iterable[Any], rank: str) -> float | None:
    told = (words.amount(each.get(rank)) for each in found if isinstance(each, dict))
    values = [each for each in told if each is not None]
    return statistics.median_high(values) / 1000 if values else None


def _partition(run: RunRecord) -> Html:
    found = run.facts.get("partition")
    if not isinstance(found, dict):
        return Html("")
    lists = [found.get(name) for name in ("vertices", "edges", "forward_ghosts", "backward_ghosts")]
    if not all(isinstance(each, list) for each in lists):
        return Html("")
    rows = [
        (f"graph server {server}", *(words.count(words.amount(each)) for each in counts))
        for server, counts in enumerate(zip(*(each for each in lists if each is not None), strict=False))
    ]
    head = ("server", "vertices", "in-edges", "ghosts, forth", "ghosts, back")
    return section(
        "Partition",
        table("Vertices, edges and ghosts of each server", head, rows),
        note=f"Made by {found.get('method')}: {words.percent(words.amount(found.get('cut_share')))} of the edges join two servers; "
        f"the heaviest server has {_plain(words.amount(found.get('balance')))} times the mean.",
    )


def _settings(run: RunRecord) -> Html:
    asked = [
        (f"{part} {name}", value)
        for part in ("graph", "model", "training")
        for name, value in _settings_of(run.section(part))
    ]
    environment = run.facts.get("environment")
    found = _settings_of(environment) if isinstance(environment, dict) else []
    settings = table("Settings", ("setting", "value"), asked)
    return section(
        "Configuration and environment", columns(settings, table("Where it ran", ("what", "value"), found))
    )


def _settings_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace(".", " ").replace("_", " "), _plain(value)) for name, value in flat(values).items()]


def _plain(value: Any) -> str:
    if value is None:
        return words.NOTHING
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)

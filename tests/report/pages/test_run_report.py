"""Reports: everything in one file, whatever the run is called and however much of it there is."""

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.report import words
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_record import RunRecord, read_run
from siafu.report.pages.comparison import compare, comparison_page
from siafu.report.pages.figures import figures
from siafu.report.pages.run_report import run_report
from siafu.report.pages.trace_view import trace_view
from tests.sessions import gcn
from tests.toys import toy_graph

HOSTILE = "<script>alert(1)</script> &\"'\x1b[31m"


class Page(HTMLParser):
    """What a browser finds in a page: its tags with their attributes, its text, its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)
        else:
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        found = next(
            s for s, (_, a) in zip(self.scripts, self._script_tags(), strict=True) if a.get("id") == "data"
        )
        value: dict[str, Any] = json.loads(found)
        return value

    def _script_tags(self) -> Iterator[tuple[str, dict[str, str | None]]]:
        return (each for each in self.tags if each[0] == "script")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two servers, under a name that no page should take as it is."""
    path = tmp_path_factory.mktemp("runs") / HOSTILE.replace("/", "")
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=6, servers=2, intervals=3, out=path)
    return path


def test_a_report_has_every_section_and_all_epochs(run: Path) -> None:
    page = Page(run_report(read_run(run), {"train T0": 1e-6}))
    for title in (
        "Epoch by epoch",
        "The pipeline",
        "Time by kind of task",
        "Staleness",
        "Partition",
        "Configuration",
    ):
        assert title in page.text
    assert [epoch["epoch"] for epoch in page.data["epochs"]] == [1, 2, 3, 4, 5, 6]
    assert [epoch["epoch"] for epoch in page.data["trace"]["epochs"]] == [1, 2, 3, 4, 5, 6]
    assert "graph server 1" in page.text
    assert "∇T0" in page.text


def test_a_hostile_name_stays_text(run: Path) -> None:
    record = read_run(run)
    for page in (run_report(record), comparison_page([record, record])):
        assert "<script>alert" not in page
        assert "alert(1)" in Page(page).text


def test_a_hostile_configuration_stays_text(run: Path) -> None:
    record = read_run(run)
    evil = "</script><img src=x onerror=alert(1)>"
    changed = RunRecord(
        evil,
        run,
        {**record.config, "graph": {"name": evil, evil: evil, "metric": evil}},
        {
            **record.summary,
            "lambda": {"invocations": evil, "kinds": {evil: {"tasks": 1}}},
            "cost": {evil: evil, "alternatives": [{"instance": evil, "machines": evil, "usd": evil}]},
        },
        {"environment": {evil: evil, "threads": evil}, "partition": {"method": evil}},
        record.history,
    )
    tags = [tag for tag, _ in Page(run_report(changed)).tags]
    assert "img" not in tags
    assert tags.count("script") == [tag for tag, _ in Page(run_report(record)).tags].count("script")


def test_a_task_of_microseconds_has_no_ratio(run: Path) -> None:
    record = read_run(run)
    kinds = record.busy_seconds()
    assert (
        " ×"
        not in Page(run_report(record, dict.fromkeys(kinds, 1e-6)))
        .text.split("Time by kind of task")[1]
        .split("In all")[0]
    )
    long = dataclasses.replace(record, history=[_slower(epoch) for epoch in record.history])
    assert " ×" in Page(run_report(long, dict.fromkeys(kinds, 1e-3))).text.split("Time by kind of task")[1]


def _slower(epoch: EpochMetrics) -> EpochMetrics:
    busy = {kind: seconds + 1.0 for kind, seconds in (epoch.busy_seconds or {}).items()}
    return dataclasses.replace(epoch, busy_seconds=busy)


def test_a_task_that_beats_its_limit_has_no_ratio_and_the_report_says_why(run: Path) -> None:
    record = read_run(run)
    told = "A task took less than that: the machine was busy when it was measured."
    page = Page(run_report(record, dict.fromkeys(record.busy_seconds(), 1e3))).text
    assert told in page and " ×" not in page.split("Time by kind of task")[1].split("in all")[0]
    assert told not in Page(run_report(record, dict.fromkeys(record.busy_seconds(), 1e-9))).text


def test_a_run_that_cannot_be_traced_is_not_told_to(run: Path) -> None:
    record = read_run(run)
    links = dataclasses.replace(record, config=record.config | {"kind": "links"})
    assert "The pipeline" in Page(run_report(record)).text
    assert "The pipeline" not in Page(run_report(links)).text


def test_a_report_has_no_dollars_if_nobody_said_what_it_ran_on(run: Path) -> None:
    record = read_run(run)
    assert record.summary["cost"]["assumed"]
    text = Page(run_report(record)).text
    assert "Cost" not in text
    assert "dollars" not in text


def test_a_report_has_dollars_of_lambdas_only_if_these_cost_something(run: Path) -> None:
    record = read_run(run)
    record.summary["lambda"] |= {"invocations": 2, "usd": 0.25}
    text = Page(run_report(record)).text
    assert "Lambdas asked for" in text
    assert "dollars" not in text
    record.summary["cost"]["lambda_compute_usd"] = 0.25
    assert "dollars, at list prices" in Page(run_report(record)).text


def test_a_report_says_what_the_run_cost_and_would_have_cost_elsewhere(run: Path) -> None:
    record = read_run(run)
    record.summary["cost"]["assumed"] = False
    text = Page(run_report(record)).text
    assert record.summary["cost"]["instance"] in text
    for each in record.summary["cost"]["alternatives"]:
        if each["instance"] is not None:
            assert f"1 × {each['instance']}" in text.split("The same run elsewhere")[1]
    assert "It ran on 1 ×" in text
    assert "graph servers" in text


def test_a_report_asks_no_network_and_runs_no_script_but_its_own(run: Path) -> None:
    page = Page(run_report(read_run(run)))
    for _, attributes in page.tags:
        assert not {"src", "srcset", "action", "onload", "onclick"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for script in page.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_every_chart_of_numbers_is_a_table_with_a_caption(run: Path) -> None:
    text = run_report(read_run(run))
    assert text.count("<caption>") == text.count("<table>") > 5
    assert re.search(r'<html lang="en">', text)


def test_a_run_that_goes_on_has_a_report_too(run: Path, tmp_path: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "trace.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    for name in ("metrics.jsonl", "trace.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes()[:-200])
    record = read_run(tmp_path)
    page = Page(run_report(record))
    assert "has not finished" in page.text
    assert len(page.data["epochs"]) == 5
    assert record.counted("staleness_histogram")["0"] > 0


def test_a_run_without_a_trace_says_how_to_have_one(run: Path, tmp_path: Path) -> None:
    for name in ("config.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert "--trace" in Page(run_report(read_run(tmp_path))).text


def test_a_run_before_its_first_epoch_has_none(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(BadInput, match="no epoch that has ended"):
        read_run(tmp_path)


def test_runs_of_an_earlier_version_have_reports(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    old = (
        "epoch",
        "train_loss",
        "val_loss",
        "train_accuracy",
        "val_accuracy",
        "test_accuracy",
        "seconds",
        "evaluate_seconds",
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    written = "".join(json.dumps({name: line[name] for name in old}) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(written)
    assert len(Page(run_report(read_run(tmp_path))).data["epochs"]) == 6


def test_the_view_of_a_trace_has_each_span_where_it_was(run: Path) -> None:
    view = trace_view(run / "trace.json")
    assert view is not None
    first = view["epochs"][0]
    assert min(start for _, _, start, *_ in first["spans"]) == 0
    kinds = {view["kinds"][kind] for kind, *_ in first["spans"]}
    assert {"train T0", "scatter", "evaluate T1", "update"} <= kinds
    assert {"graph server 0", "graph server 1"} <= {track.split(",")[0] for track in view["tracks"]}
    for track in range(len(view["tracks"])):
        spans = [(start, start + length) for _, on, start, length, *_ in first["spans"] if on == track]
        assert all(one[1] <= other[0] + 0.2 for one, other in itertools.pairwise(spans))


def test_busy_seconds_are_means_of_all_epochs_but_the_first(run: Path) -> None:
    record = read_run(run)
    counted = [epoch.busy_seconds["train T0"] for epoch in record.history[1:] if epoch.busy_seconds]
    assert record.busy_seconds()["train T0"] == pytest.approx(sum(counted) / len(counted))
    median = sorted(epoch.seconds for epoch in record.history[1:])[2]
    assert ("epoch time", words.seconds(median)) in figures(record)


def test_a_comparison_tells_what_differs(run: Path, tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=3, lr=0.05, out=tmp_path / "other")
    one, other = read_run(run), read_run(tmp_path / "other")
    found = compare([one, other])
    settings = dict(found.settings)
    assert settings["training.lr"] == ["0.01", "0.05"]
    assert "training.seed" not in settings
    assert dict(found.results)["epochs"] == ["6", "3"]
    charts = Page(comparison_page([one, other])).data["charts"]
    loss = next(chart for chart in charts if chart["id"] == "loss")
    assert [len(series["values"]) for series in loss["series"]] == [6, 6]
    assert loss["series"][1]["values"][3:] == [None, None, None]


def test_namesakes_are_told_apart_by_their_paths(run: Path) -> None:
    record = read_run(run)
    twin = RunRecord(record.name, run / "b", record.config, record.summary, record.facts, record.history)
    assert len(set(compare([record, twin]).names)) == 2

"""Traces of real runs: as the format says, and in agreement with the metrics."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.report.files.trace_file import events
from tests.report.trace_events import checked_events
from tests.sessions import gcn
from tests.toys import toy_graph


def spent_by_epoch(path: Path) -> dict[int, dict[str, float]]:
    """Seconds of the spans on servers' threads, by epoch and kind."""
    found = list(events(path))
    lambdas = {event["pid"] for event in found if str(event["args"].get("name")).startswith("Lambdas")}
    sums: dict[int, dict[str, float]] = {}
    for event in found:
        if event["ph"] == "X" and event["pid"] not in lambdas:
            kinds = sums.setdefault(event["args"]["epoch"], {})
            kinds[event["name"]] = kinds.get(event["name"], 0.0) + 1e-6 * event["dur"]
    return sums


@pytest.mark.parametrize(
    "layout",
    [
        {"mode": "sync", "servers": 2, "intervals": 3},
        {"mode": "pipe", "servers": 1, "intervals": 8},
        {"mode": "async", "staleness": 1, "servers": 2, "intervals": 4, "weight_servers": 2},
        {"mode": "pipe", "intervals": 4, "evaluate_every": 4},
    ],
    ids=str,
)
def test_spans_are_well_formed_and_add_up_to_the_metrics(tmp_path: Path, layout: dict[str, Any]) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, **layout)  # compiles: that is in spans, and in no metric
    run = siafu.train(graph, gcn(graph), epochs=12, out=tmp_path / "run", trace="full", **layout)
    found = checked_events((tmp_path / "run/trace.json").read_text())
    assert found[-1]["args"] == {"dropped": 0, "epochs": list(range(1, 13))}
    spent = spent_by_epoch(tmp_path / "run/trace.json")
    # They may end after the record of their epoch, and count with the next: rows, where no one waits for them.
    late = {"update", "scatter"} if layout["mode"] == "async" else {"update"}
    for epoch in run.history:
        assert epoch.busy_seconds is not None
        counted = {kind: seconds for kind, seconds in epoch.busy_seconds.items() if kind not in late}
        traced = {kind: seconds for kind, seconds in spent[epoch.epoch].items() if kind not in late}
        assert traced == pytest.approx(counted, rel=0.01)
    for kind in late:
        counted_of = sum((epoch.busy_seconds or {}).get(kind, 0.0) for epoch in run.history)
        assert counted_of <= sum(kinds.get(kind, 0.0) for kinds in spent.values()) * 1.01


def test_every_task_of_an_epoch_is_in_its_trace_once(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=3, servers=2, intervals=3, out=tmp_path / "run")
    tasks: dict[str, list[int]] = {}
    for event in events(tmp_path / "run/trace.json"):
        if event["ph"] == "X" and event["args"]["epoch"] == 2 and event["cat"] != "other":
            tasks.setdefault(event["name"], []).append(event["args"]["interval"])
    assert {"train T0", "train ∇T0", "evaluate T1"} <= tasks.keys()
    assert all(sorted(intervals) == [0, 1, 2, 3, 4, 5] for intervals in tasks.values())


def test_a_line_of_metrics_tells_what_was_done(tmp_path: Path) -> None:
    graph = toy_graph()
    run = siafu.train(
        graph, gcn(graph), epochs=6, mode="async", staleness=1, servers=2, intervals=3, out=tmp_path / "run"
    )
    summary = run.summary()
    scattered = [epoch.bytes_scattered or 0 for epoch in run.history]
    assert 0 < sum(scattered) <= summary["bytes_scattered"]
    entered: dict[str, int] = {}
    for epoch in run.history:
        for lead, count in (epoch.staleness or {}).items():
            entered[lead] = entered.get(lead, 0) + count
    assert entered == summary["staleness_histogram"]
    assert siafu.Run.load(tmp_path / "run").history == run.history


def test_a_run_without_a_trace_is_the_same_run(tmp_path: Path) -> None:
    graph = toy_graph()
    runs = [
        siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / trace, trace=trace)
        for trace in ("off", "full")
    ]
    assert not (tmp_path / "off/trace.json").exists()
    first, second = ([dataclasses.astuple(epoch)[:6] for epoch in run.history] for run in runs)
    assert first == second


def test_a_trace_mode_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="choose one of off, sampled, full"):
        siafu.train(toy_graph(), gcn(toy_graph()), trace="some")


def test_lambdas_are_in_the_metrics_and_in_the_trace(tmp_path: Path) -> None:
    graph = toy_graph()
    run = siafu.train(
        graph,
        gcn(graph),
        epochs=4,
        intervals=3,
        lambdas="local",
        lambda_count=2,
        out=tmp_path / "run",
        trace="full",
    )
    found = checked_events((tmp_path / "run/trace.json").read_text())
    lambdas = {event["pid"] for event in found if event["args"].get("name") == "Lambdas of graph server 0"}
    spans = [event for event in found if event["ph"] == "X" and event["pid"] in lambdas]
    for epoch in run.history:
        did = epoch.lambdas
        assert did is not None
        mine = [span for span in spans if span["args"]["epoch"] == epoch.epoch]
        sums: dict[str, float] = {}
        for span in mine:
            sums[span["name"]] = sums.get(span["name"], 0.0) + 1e-6 * span["dur"]
        assert sums == pytest.approx(did["busy_seconds"], rel=0.01)
        assert did["count"] == 2
        assert did["latency_ms"]["p50"] <= did["latency_ms"]["p99"] <= did["latency_ms"]["max"]
        assert all(span["args"]["bytes"] > 0 for span in mine)
    used = run.summary()["lambda"]
    tasks = sum(kind["tasks"] for kind in used["kinds"].values())
    assert sum(epoch.lambdas["tasks"] for epoch in run.history if epoch.lambdas) == tasks == len(spans)

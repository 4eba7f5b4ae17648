"""The journal: every line of metrics, and a trace if that can be had."""

import threading
from pathlib import Path

import pytest

from siafu.base.errors import NoSpace
from siafu.report.files.journal import Journal
from siafu.report.files.metrics import EpochMetrics, MetricsFile, read_metrics
from siafu.report.files.sampling import Sampling
from siafu.report.files.trace_file import TraceFile, events
from siafu.runtime.happenings import EpochActivity
from tests.report.files.test_trace_file import activity


def metrics(epoch: int) -> EpochMetrics:
    return EpochMetrics(epoch, 0.5, None, None, None, None, 0.01, None, 1.5, {"train T0": 0.25}, {"0": 4}, 7)


def test_lines_are_on_the_disk_once_it_is_synced(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m")
    with Journal(file, None, pytest.fail) as journal:
        for epoch in range(1, 101):
            journal.add(metrics(epoch), EpochActivity())
        journal.sync()
        assert read_metrics(tmp_path / "m") == [metrics(epoch) for epoch in range(1, 101)]
    file.close()


def test_a_slow_trace_loses_spans_and_no_line(tmp_path: Path) -> None:
    go = threading.Event()

    class Slow(TraceFile):
        def add(self, epoch: int, done: EpochActivity) -> None:
            go.wait(10)
            super().add(epoch, done)

    file = MetricsFile(tmp_path / "m")
    with Journal(file, lambda: Slow(tmp_path / "t", Sampling(300, full=True)), pytest.fail) as journal:
        for epoch in range(1, 301):
            journal.add(metrics(epoch), activity(epoch))
        go.set()
    file.close()
    assert len(read_metrics(tmp_path / "m")) == 300
    last = list(events(tmp_path / "t"))[-1]["args"]
    assert 60 <= len(last["epochs"]) <= 70
    assert last["dropped"] == 4 * (300 - len(last["epochs"]))


def test_a_trace_that_cannot_be_written_is_said_once_and_the_run_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "t").mkdir()
    file = MetricsFile(tmp_path / "m")
    with Journal(file, lambda: TraceFile(tmp_path / "t", Sampling(9)), said.append) as journal:
        for epoch in range(1, 10):
            journal.add(metrics(epoch), activity(epoch))
        journal.keep_until(4)
    file.close()
    assert len(read_metrics(tmp_path / "m")) == 4
    (line,) = said
    assert "goes on without its trace" in line


def test_a_line_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    class Full(MetricsFile):
        def append(self, metrics: EpochMetrics) -> None:
            raise NoSpace("full")

    file = Full(tmp_path / "m")
    with Journal(file, None, pytest.fail) as journal:
        journal.add(metrics(1), EpochActivity())
        with pytest.raises(NoSpace):
            journal.sync()
    file.close()


def test_void_epochs_leave_both_files(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m")
    with Journal(file, lambda: TraceFile(tmp_path / "t", Sampling(9)), pytest.fail) as journal:
        for epoch in range(1, 6):
            journal.add(metrics(epoch), activity(epoch))
        journal.keep_until(2)
    file.close()
    assert len(read_metrics(tmp_path / "m")) == 2
    assert {event["args"]["epoch"] for event in events(tmp_path / "t") if event["ph"] == "X"} == {1, 2}

"""Trace files: the public format, in bounds, whatever becomes of the file."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.activity import About, Span, Taken
from siafu.report.files.sampling import Sampling
from siafu.report.files.trace_file import TraceFile, events
from siafu.runtime.happenings import EpochActivity
from tests.report.trace_events import checked_events


def activity(
    epoch: int, tasks: int = 4, *, server: str = "graph server 0", dropped: int = 0
) -> EpochActivity:
    """An epoch, counted from 1, of tasks that last a second each, on two threads."""
    spans = [
        Span(
            About(server, epoch - 1, place),
            "train ∇G1",
            place % 2,
            10.0 * epoch + place // 2,
            10.0 * epoch + place // 2 + 1,
        )
        for place in range(tasks)
    ]
    return EpochActivity((Taken({}, tuple(spans), dropped, zero=time.time()),))


def written(path: Path, epochs: int, *, full: bool = False) -> TraceFile:
    file = TraceFile(path, Sampling(epochs, full=full))
    for epoch in range(1, epochs + 1):
        file.add(epoch, activity(epoch))
    return file


def epochs_in(path: Path) -> list[int]:
    return sorted({event["args"]["epoch"] for event in events(path) if event["ph"] == "X"})


def test_a_finished_file_is_as_the_format_says(tmp_path: Path) -> None:
    written(tmp_path / "t", 20).close()
    found = checked_events((tmp_path / "t").read_text())
    assert {event["args"]["name"] for event in found if event["ph"] == "M"} == {
        "graph server 0",
        "thread 0",
        "thread 1",
    }
    assert found[-1]["args"] == {"dropped": 0, "epochs": epochs_in(tmp_path / "t")}


def test_the_first_epochs_some_more_and_the_last_are_there(tmp_path: Path) -> None:
    written(tmp_path / "t", 163).close()
    assert epochs_in(tmp_path / "t") == [1, 2, 3, *range(11, 163, 11), 163]


def test_of_a_full_trace_every_epoch_is_there(tmp_path: Path) -> None:
    written(tmp_path / "t", 40, full=True).close()
    assert epochs_in(tmp_path / "t") == list(range(1, 41))


def test_a_file_at_its_limit_takes_no_more_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siafu.report.files.trace_file.MOST_BYTES", 2000)
    written(tmp_path / "t", 16).close()
    last = list(events(tmp_path / "t"))[-1]["args"]
    assert (tmp_path / "t").stat().st_size < 2300
    assert last["epochs"] == [1, 2]
    assert last["dropped"] == 14 * 4


def test_an_epoch_whose_spans_had_no_room_is_not_called_whole(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t", Sampling(3))
    file.add(1, activity(1, dropped=5))
    file.close()
    assert list(events(tmp_path / "t"))[-1]["args"] == {"dropped": 5, "epochs": []}


def test_a_file_that_is_being_written_can_be_read(tmp_path: Path) -> None:
    file = written(tmp_path / "t", 5)
    assert epochs_in(tmp_path / "t") == [1, 2, 3, 4, 5]
    file.close()


@given(cut=st.integers(1, 1500))
def test_a_torn_file_keeps_its_whole_lines_and_can_be_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "t"
    written(path, 3).close()
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    whole = sum(1 for _ in events(path))
    assert data[:-cut].count(b"\n") - 1 <= whole <= data[:-cut].count(b"\n") + 1
    TraceFile(path, Sampling(9), keep_until=2).close()
    checked_events(path.read_text())
    assert set(epochs_in(path)) <= {1, 2}


@given(st.binary(max_size=300))
def test_a_file_of_anything_is_read_as_what_it_holds(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "t"
    path.write_bytes(b'[\n{"name":1}\n{"name":"x","ph":"X","pid":1,"tid":1,"args":{}}\n' + data)
    for event in events(path):
        assert isinstance(event["name"], str)
    TraceFile(path, Sampling(9), keep_until=2).close()
    checked_events(path.read_text())


def test_a_resumed_run_goes_on_where_its_checkpoint_was(tmp_path: Path) -> None:
    written(tmp_path / "t", 5).close()
    file = TraceFile(tmp_path / "t", Sampling(6), keep_until=3)
    for epoch in (4, 5, 6):
        file.add(epoch, activity(epoch, server="graph server 1"))
    file.close()
    found = checked_events((tmp_path / "t").read_text())
    assert sum(event["ph"] == "X" for event in found) == 6 * 4
    names = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    assert names == {1: "graph server 0", 2: "graph server 1"}
    assert {names[event["pid"]] for event in found if event["ph"] == "X" and event["args"]["epoch"] > 3} == {
        "graph server 1"
    }


def test_epochs_that_a_lost_server_made_void_leave_the_trace(tmp_path: Path) -> None:
    file = written(tmp_path / "t", 5)
    file.keep_until(2)
    file.add(3, activity(3, tasks=1))
    file.close()
    found = checked_events((tmp_path / "t").read_text())
    assert [event["args"]["epoch"] for event in found if event["ph"] == "X"].count(3) == 1
    assert found[-1]["args"]["epochs"] == [1, 2, 3]


def test_lambdas_have_tracks_of_their_own(tmp_path: Path) -> None:
    spans = activity(1).threads
    file = TraceFile(tmp_path / "t", Sampling(1))
    file.add(1, EpochActivity(spans, spans))
    file.close()
    found = checked_events((tmp_path / "t").read_text())
    named = {event["args"]["name"] for event in found if event["ph"] == "M"}
    assert {"Lambdas of graph server 0", "Lambda 0", "Lambda 1"} <= named

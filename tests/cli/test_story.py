"""`siafu story`."""

import json
from pathlib import Path

import pytest

from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.story_file import FailureStory, write_story
from siafu.runtime import local
from siafu.runtime.story import Entry
from tests.cli.command import Siafu
from tests.runtime.test_local import LosesRows


@pytest.fixture
def run(siafu: Siafu, store: Path) -> Path:
    """One that ended well, with its trace."""
    siafu("train", store, epochs=3, intervals=2, out="run")
    return Path("run")


@pytest.fixture
def failed(siafu: Siafu) -> Path:
    """One that failed, as far as its directory tells."""
    run = Path("run")
    RunDirectory.start(run, {}).close()
    entries = [
        Entry(1.0, "graph server 0", "RunTask", "run G1 of interval 0, train epoch 1", 0, 1),
        Entry(2.0, "graph server 0", "RunTask", "run G1 of interval 1, train epoch 2", 1, 2),
        Entry(3.0, "weight server 0", "Update", "make version 1"),
        Entry(4.0, "Lambdas", "OfferTask", "offer task 1 to Lambda 7", 1, 2, None, "graph server 0", 7),
    ]
    waiting = [
        "run: 1 epochs trained",
        "graph server 0: G1 of interval 1, train epoch 2 waits for rows of epoch 2 from intervals [0, 10]",
        "weight server 0: interval 3 holds version 1 for epoch 2",
    ]
    write_story(run / "story.jsonl", FailureStory(5.0, "KeyError: 'x'", entries, waiting))
    return run


def test_of_a_failed_run_it_tells_what_happened_and_what_waits(siafu: Siafu, failed: Path) -> None:
    told = siafu("story", failed).out.splitlines()
    assert told[0] == "run/story.jsonl: the run failed: KeyError: 'x'"
    assert told[1] == "4 entries:"
    assert told[2].endswith("graph server 0: run G1 of interval 0, train epoch 1")
    assert told[6:8] == ["What waits:", "run: 1 epochs trained"]
    assert len(told) == 10


@pytest.mark.parametrize(
    ("asked", "times", "waits"),
    [
        ({"interval": 1}, [2.0, 4.0], 2),
        ({"interval": 10}, [], 2),
        ({"epoch": 1}, [1.0], 1),
        ({"server": 0}, [1.0, 2.0, 4.0], 2),
        ({"server": "weight-0"}, [3.0], 2),
        ({"lambda": 7}, [4.0], 1),
        ({"interval": 1, "last": 1}, [4.0], 2),
    ],
)
def test_it_tells_of_an_interval_an_epoch_a_server_or_a_lambda(
    siafu: Siafu, failed: Path, asked: dict[str, object], times: list[float], waits: int
) -> None:
    told = siafu("story", failed, json=True, **asked).json()
    assert [each["time"] for each in told["entries"]] == times
    assert len(told["waiting"]) == waits


@pytest.mark.slow
def test_a_run_that_stands_still_ends_with_one_line_and_its_story(
    siafu: Siafu, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GraphServer", LosesRows)
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.02)
    ended = siafu("train", store, epochs=3, servers=2, intervals=2, out="stuck")
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith("siafu: the run stands still")
    told = siafu("story", "stuck", interval=0).out
    assert "of interval 0, train epoch 1 is done" in told
    assert "waits for rows of epoch 1 from intervals [0]" in told.split("What waits:")[1]


def test_of_a_run_that_ended_well_it_tells_the_tasks_of_its_trace(siafu: Siafu, run: Path) -> None:
    told = siafu("story", run, "--last", 0, interval=1, epoch=2).out.splitlines()
    assert told[0] == "run/trace.json: the tasks of its trace"
    tasks = [line.split(": ", 1)[1] for line in told[2:]]
    assert any(line.startswith("train G1 of interval 1, epoch 2, ") for line in tasks)
    assert all(" of interval 1, epoch 2, " in line for line in tasks)
    assert told[1] == f"{len(tasks)} entries:"


def test_the_last_tasks_are_shown_in_the_order_of_time(siafu: Siafu, run: Path) -> None:
    told = json.loads(siafu("story", run, last=5, json=True).out)
    times = [each["time"] for each in told["entries"]]
    assert (len(times), times) == (5, sorted(times))
    assert told["count"] > 5
    assert (told["source"], told["why"]) == ("trace.json", None)
    assert "the last 5 (--last 0 shows all)" in siafu("story", run, last=5).out


def test_nothing_to_tell_is_one_clear_line(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=1, out="bare", trace="off")
    assert "neither story.jsonl" in siafu.refused("story", "bare")
    assert "no run at nowhere" in siafu.refused("story", "nowhere")


def test_a_damaged_story_and_a_server_that_is_none_are_one_clear_line(siafu: Siafu, failed: Path) -> None:
    assert "--server is 'x'" in siafu.refused("story", failed, server="x")
    path = failed / "story.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert "corrupted" in siafu.refused("story", failed)

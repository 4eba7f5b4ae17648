"""Runs in a directory, as they come, go and change."""

import asyncio
import shutil
from pathlib import Path

import pytest

from siafu.dashboard import rows, shelf
from siafu.dashboard.rows import EpochFeed, parse_row
from siafu.dashboard.run_state import RunState
from siafu.dashboard.shelf import Shelf
from siafu.report.files.metrics import MetricsFile
from siafu.report.files.stop_file import StopFile
from tests.dashboard.runs import add_epochs, epoch, make_run


def look(runs: Shelf) -> dict[str, RunState]:
    """A new look, by the names of the runs."""
    runs.forget_view()
    return {run.name: run for run in asyncio.run(runs.view()).runs.values()}


def test_runs_and_runs_of_several_seeds_are_found_and_nothing_else(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    make_run(tmp_path / "many" / "seed-0")
    (tmp_path / "no-run").mkdir()
    (tmp_path / "elsewhere").symlink_to(make_run(tmp_path.parent / f"{tmp_path.name}-other"))
    assert look(Shelf(tmp_path)).keys() == {"one", "many/seed-0"}


def test_a_run_itself_can_be_the_directory(tmp_path: Path) -> None:
    assert look(Shelf(make_run(tmp_path / "mine"))).keys() == {"mine"}


def test_a_directory_that_is_not_there_holds_no_runs(tmp_path: Path) -> None:
    assert look(Shelf(tmp_path / "later")) == {}


def test_a_run_stands_as_its_last_and_best_epochs_say(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", epochs=4)
    add_epochs(run, epoch(5, val_accuracy=0.1), epoch(6, val_accuracy=None))
    state = look(Shelf(tmp_path))["one"]
    assert (state.epoch, state.epochs, state.best_epoch) == (6, 10, 4)
    assert state.best_val_accuracy == 0.75
    assert state.last is not None and state.last["train_loss"] == pytest.approx(2 / 6)
    assert (state.dataset, state.model, state.mode) == ("toy", "gcn", "pipe")


def test_a_run_is_running_while_it_is_locked_and_stopping_once_asked(tmp_path: Path) -> None:
    path = make_run(tmp_path / "one")
    runs = Shelf(tmp_path)
    assert look(runs)["one"].status == "stopped"
    training = MetricsFile(path / "metrics.jsonl")
    assert look(runs)["one"].status == "running"
    StopFile(path).ask()
    assert look(runs)["one"].status == "stopping"
    training.close()
    (path / "summary.json").write_text("{}")
    assert look(runs)["one"].status == "finished"


def test_runs_appear_and_vanish(tmp_path: Path) -> None:
    runs = Shelf(tmp_path)
    make_run(tmp_path / "one")
    assert look(runs).keys() == {"one"}
    make_run(tmp_path / "two")
    assert look(runs).keys() == {"one", "two"}
    shutil.rmtree(tmp_path / "one")
    assert look(runs).keys() == {"two"}


def test_a_run_that_begins_anew_forgets_what_it_was(tmp_path: Path) -> None:
    path = make_run(tmp_path / "one", epochs=9)
    runs = Shelf(tmp_path)
    assert look(runs)["one"].best_epoch == 9
    (path / "metrics.jsonl").write_text("")
    add_epochs(path, epoch(1))
    state = look(runs)["one"]
    assert (state.epoch, state.best_epoch) == (1, 1)


@pytest.mark.parametrize(
    "config", ["", "{", "[]", "{}", '{"graph": 3, "training": {"epochs": "x"}}', "[" * 100_000]
)
def test_a_damaged_config_breaks_nothing(tmp_path: Path, config: str) -> None:
    path = make_run(tmp_path / "one")
    (path / "config.json").write_text(config)
    state = look(Shelf(tmp_path))["one"]
    assert state.status in ("broken", "stopped")
    assert (state.dataset, state.epochs) == (None, None)


def test_names_that_are_no_text_are_shown_as_text(tmp_path: Path) -> None:
    make_run(tmp_path / b"a\xff\nb".decode("utf-8", "surrogateescape"))
    (name,) = look(Shelf(tmp_path))
    assert name == "a\\xff\nb"


def test_the_newest_are_shown_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "_MOST_RUNS", 2)
    for number in range(4):
        make_run(tmp_path / f"{number}")
    view = asyncio.run(Shelf(tmp_path).view())
    assert (len(view.runs), view.all) == (2, False)


def test_what_is_too_much_for_one_look_is_read_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "one", epochs=3)
    runs = Shelf(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shelf, "_LOOK_SECONDS", -1.0)
        assert look(runs)["one"].epoch == 0
    assert look(runs)["one"].epoch == 3


def test_who_asks_often_is_given_the_same_look(tmp_path: Path) -> None:
    async def twice() -> bool:
        runs = Shelf(tmp_path)
        first = await runs.view()
        return await runs.view() is first

    assert asyncio.run(twice())


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"3", b'{"epoch": 0}', b'{"epoch": true}', b'{"epoch": "1"}', b"[" * 60_000, b"\xff"],
)
def test_what_is_no_epoch_is_left_out(line: bytes) -> None:
    assert parse_row(line) is None


def test_numbers_that_json_does_not_know_become_unknown() -> None:
    assert parse_row(b'{"epoch": 1, "train_loss": NaN}') == {"epoch": 1, "train_loss": None}


def test_a_line_cut_off_in_the_middle_is_left_out_until_it_is_whole(tmp_path: Path) -> None:
    path = make_run(tmp_path / "one", epochs=1) / "metrics.jsonl"
    with path.open("a") as file:
        file.write('{"epoch": 2, "train_l')
    feed = EpochFeed(path)
    assert [row["epoch"] for row in feed.read()[1]] == [1]
    with path.open("a") as file:
        file.write('oss": 1}\n')
    assert feed.read() == (False, [{"epoch": 2, "train_loss": 1}], False)


def test_a_long_run_is_thinned_out_and_then_told_epoch_by_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MOST_ROWS", 10)
    path = make_run(tmp_path / "one", epochs=1000)
    feed = EpochFeed(path / "metrics.jsonl")
    epochs, more = [], True
    while more:
        _, found, more = feed.read()
        epochs += [row["epoch"] for row in found]
    assert 9 <= len(epochs) <= 12
    assert epochs[-1] == 1000
    add_epochs(path, epoch(1001), epoch(1002))
    assert [row["epoch"] for row in feed.read()[1]] == [1001, 1002]

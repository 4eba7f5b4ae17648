"""`siafu report` and `siafu compare`."""

import json
from pathlib import Path

import pytest

from siafu.cli.compare import _print
from siafu.report.pages.comparison import Comparison
from tests.cli.command import Siafu


@pytest.fixture
def runs(siafu: Siafu, store: Path) -> tuple[Path, Path]:
    """Two runs that differ in their learning rate."""
    for name, lr in (("one", 0.01), ("two", 0.05)):
        siafu("train", store, epochs=3, lr=lr, out=name)
    return Path("one"), Path("two")


def test_a_report_goes_into_the_run_or_where_it_is_wanted(siafu: Siafu, runs: tuple[Path, Path]) -> None:
    assert siafu("report", runs[0]).code == 0
    assert siafu("report", runs[0], "--no-limits", "-o", "elsewhere/a.html").code == 0
    for path in (runs[0] / "report.html", Path("elsewhere/a.html")):
        assert path.read_text().startswith("<!doctype html>")
    # With limits, the table of kinds has ratios; without, it says why not.
    assert "measured peak" in (runs[0] / "report.html").read_text()
    assert "is not known" in Path("elsewhere/a.html").read_text()


@pytest.mark.slow
def test_a_report_to_a_device_leaves_the_device(siafu: Siafu, runs: tuple[Path, Path]) -> None:
    Path("null").symlink_to("/dev/null")
    for place in ("/dev/null", "null"):
        assert siafu("report", runs[0], "--no-limits", "-o", place).code == 0
    assert Path("/dev/null").is_char_device()
    assert Path("null").is_symlink()
    shown = siafu("report", runs[0], "--no-limits", "-o", "/dev/stdout")
    assert shown.out.startswith("<!doctype html>")


def test_runs_are_compared_in_a_table_in_a_page_and_as_json(siafu: Siafu, runs: tuple[Path, Path]) -> None:
    shown = siafu("compare", *runs, "-o", "c.html")
    assert "training.lr" in shown.out
    assert "\x1b" not in shown.out
    assert "2 runs" in Path("c.html").read_text()
    found = json.loads(siafu("compare", *runs, json=True).out)
    assert found["settings"]["training.lr"] == {"one": "0.01", "two": "0.05"}


def test_the_runs_in_a_directory_are_compared_and_files_beside_them_left_out(
    siafu: Siafu, store: Path
) -> None:
    siafu("sweep", store, "--vary", "lr=0.01,0.05", epochs=1, out="swept")
    unborn = Path("swept/unborn")
    unborn.mkdir()
    (unborn / "config.json").write_text("{}")
    found = siafu("compare", "swept", json=True)
    assert set(found.json()["settings"]["training.lr"].values()) == {"0.01", "0.05"}
    assert "left out: swept/unborn" in found.err
    unborn.joinpath("config.json").unlink()
    unborn.rmdir()
    named = siafu("compare", *sorted(Path("swept").iterdir()), json=True)
    assert named.json() == found.json()
    assert "left out swept/sweep.csv: it is a file" in named.err


def test_a_name_that_would_move_the_cursor_does_not(siafu: Siafu, runs: tuple[Path, Path]) -> None:
    evil = runs[0].rename("evil\x1b[2J")
    assert "\x1b" not in siafu("compare", evil, runs[1]).out


def test_one_run_or_none_is_one_clear_line(siafu: Siafu, runs: tuple[Path, Path]) -> None:
    assert "two or more" in siafu.refused("compare", runs[0])
    assert "no run at nowhere" in siafu.refused("compare", runs[0], "nowhere")
    assert "no run at nowhere" in siafu.refused("report", "nowhere")


def test_a_trace_can_be_left_out(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=2, out="run", trace="off")
    assert not Path("run/trace.json").exists()
    assert "choose one of" in siafu.refused("train", store, epochs=2, out="other", trace="maybe")


def test_runs_that_do_not_fit_side_by_side_stand_one_under_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"gcn-lr-{number}" for number in range(8)]
    rows = [("state", ["finished"] * 8), ("training.weight_decay", [f"0.000{number}" for number in range(8)])]
    _print(Comparison(names, rows[:1], rows[1:]))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("training.weight_decay") == 2
    assert all(name in shown for name in names)
    assert shown.count("finished") == 8

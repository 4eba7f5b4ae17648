import pytest

from siafu.base.compiling import compiling
from siafu.cli import common
from siafu.cli.common import ProgressBar, told_rate


def test_rates_are_told_in_numbers_that_say_something() -> None:
    assert told_rate(93_000_000, 10, "edges") == "9.3 M edges/s"
    assert told_rate(400, 0.5, "edges") == "800 edges/s"


def test_a_stage_that_has_only_begun_tells_no_rate_and_no_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(common.time, "monotonic", lambda: now)
    with ProgressBar("edges") as progress:
        now = 5.9
        progress("sorting edges", 1, 1000)
        now = 11.0
        progress("writing vertices", 10, 1000)
        progress("sorting edges", 501, 1000)
        now = 16.4
        progress("writing vertices", 50, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "sorting edges: 0 %",
        "writing vertices: 1 %",
        "writing vertices: 5 %, 7 vertices/s, 128 s left",
    ]


def test_compilation_during_a_progress_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("edges"):
        for _ in range(2):
            with compiling("kernels"):
                pass
    with compiling("kernels"):
        pass
    assert capsys.readouterr().err == "compiling kernels: once, the cache keeps it\n"

"""The line that a run shows."""

import signal

import pytest

from siafu.report.metrics import EpochMetrics
from siafu.report.progress import ProgressLine, duration


def metrics(epoch: int, val_accuracy: float | None = 0.5) -> EpochMetrics:
    return EpochMetrics(epoch, 0.25, 0.1, 0.75, val_accuracy, None, 0.01, 0.02)


def test_without_a_terminal_lines_are_plain_and_few(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(100) as progress:
        for epoch in range(1, 101):
            progress.epoch_ended(metrics(epoch))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "epoch 1/100  loss 0.2500  validation accuracy 50.00 % (best 50.00 %)  30.0 ms"


@pytest.mark.parametrize(("verbose", "said"), [(False, ["what"]), (True, ["what", "why"])])
def test_reasons_are_said_if_asked(
    capsys: pytest.CaptureFixture[str], verbose: bool, said: list[str]
) -> None:
    with ProgressLine(3, verbose=verbose) as progress:
        progress.prepared(["what"], ["why"])
    assert capsys.readouterr().err.splitlines() == said


def test_without_validation_the_training_score_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(3, metric="micro_f1") as progress:
        progress.epoch_ended(metrics(1, None))
    assert "training micro-f1 75.00 %" in capsys.readouterr().err


def test_on_a_terminal_one_line_is_redrawn_without_colours_if_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with ProgressLine(3) as progress:
        progress.epoch_ended(metrics(2))
        progress.stopping(signal.SIGINT)
    shown = capsys.readouterr().err
    assert "2/3" in shown
    assert "SIGINT" in shown
    assert "\x1b[32m" not in shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0042, "4.2 ms"), (12.34, "12.3 s"), (600, "10.0 min"), (10800, "3.0 h")]
)
def test_times_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text

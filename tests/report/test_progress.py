"""The line that a run shows."""

import signal

import pytest

from siafu.base.compiling import compiling
from siafu.objective.metric import Metric
from siafu.report.files.metrics import EpochMetrics
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
    with ProgressLine(3, metric=Metric("micro_f1")) as progress:
        progress.epoch_ended(metrics(1, None))
    assert "training micro-F1 75.00 %" in capsys.readouterr().err


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


@pytest.mark.parametrize("terminal", [False, True])
def test_compilation_is_told_once_while_it_lasts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressLine(3):
        for _ in range(2):
            with compiling("kernels"):
                pass
    with compiling("kernels"):
        pass
    shown = capsys.readouterr().err
    assert "compiling kernels" in shown
    if not terminal:
        assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0042, "4.2 ms"), (12.34, "12.3 s"), (600, "10.0 min"), (10800, "3.0 h")]
)
def test_times_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def busy(epoch: int) -> EpochMetrics:
    """Of a run with Lambdas, out of step."""
    did = {"count": 8, "latency_ms": {"p50": 12.5}}
    return EpochMetrics(
        epoch, 0.25, 0.1, 0.75, 0.5, 0.625, 0.01, 0.02, 1.0, {}, {"0": 3, "1": 1}, 0, did, 0.5
    )


def test_staleness_lambdas_and_dollars_are_told_where_there_are_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressLine(2) as progress:
        progress.priced(lambda share: f"$1 of ${1 / share:.0f}")
        progress.epoch_ended(busy(1))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("30.0 ms  staleness up to 1  8 Lambdas, 12.5 ms a task  $1 of $2")


def test_on_a_terminal_there_is_a_bar_with_the_time_left_and_every_split(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with ProgressLine(12) as progress:
        for epoch in (1, 2):
            progress.epoch_ended(busy(epoch))
    shown = capsys.readouterr().err
    for said in ("2/12", "30.0 ms an epoch, 300.0 ms left", "test 62.50 %", "training 75.00 %", "8 Lambdas"):
        assert said in shown


def test_an_error_is_shown_as_a_number_and_the_lowest_is_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(1, metric=Metric("mean_error", larger_is_better=False, is_share=False)) as progress:
        progress.epoch_ended(metrics(2, 1.25))
        progress.epoch_ended(metrics(1, 2.5))
    assert "validation mean-error 2.5000 (best 1.2500)" in capsys.readouterr().err

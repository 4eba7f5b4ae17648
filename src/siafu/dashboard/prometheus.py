"""Runs as Prometheus reads them: its text format, version 0.0.4."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from siafu.dashboard.run_state import RunState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _last(field: str) -> Callable[[RunState], Any]:
    return lambda run: None if run.last is None else run.last.get(field)


_GAUGES: tuple[tuple[str, str, Callable[[RunState], Any]], ...] = (
    (
        "siafu_run_running",
        "Whether a process trains it: 1 or 0.",
        lambda run: int(run.status in ("running", "stopping")),
    ),
    ("siafu_run_epoch", "Epochs that are done.", lambda run: run.epoch),
    ("siafu_run_epochs", "Epochs that there may be.", lambda run: run.epochs),
    ("siafu_run_updated_timestamp_seconds", "When the run last wrote of an epoch.", lambda run: run.updated),
    ("siafu_run_train_loss", "Training loss of the last epoch.", _last("train_loss")),
    (
        "siafu_run_val_accuracy",
        "Validation accuracy, or the objective's other metric, of the last epoch.",
        _last("val_accuracy"),
    ),
    (
        "siafu_run_best_val_accuracy",
        "The best of these so far.",
        lambda run: run.best_val_accuracy,
    ),
    ("siafu_run_epoch_seconds", "How long the last epoch took.", _last("seconds")),
    ("siafu_run_usd", "Dollars so far.", _last("usd")),
)


def render(runs: Iterable[RunState]) -> str:
    """Every gauge of every run; one that a run has no number for is left out."""
    known = list(runs)
    return "".join(line for gauge in _GAUGES for line in _lines(known, *gauge))


def _lines(runs: list[RunState], name: str, told: str, value: Callable[[RunState], Any]) -> Iterator[str]:
    yield f"# HELP {name} {told}\n# TYPE {name} gauge\n"
    for run in runs:
        found = value(run)
        if isinstance(found, int | float):
            labels = {"run": run.name, "dataset": run.dataset or "", "model": run.model or ""}
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{name}{{{pairs}}} {found:.17g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

"""Directories that look like runs, made by hand."""

import json
from pathlib import Path
from typing import Any


def epoch(number: int, **fields: Any) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    measured = {
        "epoch": number,
        "train_loss": 2.0 / number,
        "val_loss": 2.5 / number,
        "train_accuracy": 1 - 0.9 / number,
        "val_accuracy": 1 - 1.0 / number,
        "test_accuracy": 1 - 1.1 / number,
        "seconds": 0.01,
        "evaluate_seconds": 0.005,
    }
    return measured | fields


def add_epochs(run: Path, *rows: dict[str, Any]) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def make_run(run: Path, epochs: int = 3, *, finished: bool = False, **more: Any) -> Path:
    """A run's directory as a training leaves it; more: what else its config has."""
    run.mkdir(parents=True)
    config = {
        "format": "siafu run",
        "version": 1,
        "graph": {"name": "toy", "metric": "accuracy"},
        "model": {"name": "gcn"},
        "training": {"epochs": 10, "mode": "pipe"},
        **more,
    }
    (run / "config.json").write_text(json.dumps(config))
    add_epochs(run, *(epoch(number) for number in range(1, epochs + 1)))
    if finished:
        (run / "summary.json").write_text("{}")
    return run

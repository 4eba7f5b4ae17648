"""A run's card in notebooks."""

from collections.abc import Mapping
from typing import Any

from siafu.base.card import card
from siafu.cost.run_prices import wanted
from siafu.objective.metric import metric_of
from siafu.report import words


def run_card(summary: Mapping[str, Any]) -> str:
    """A small table of what came of it."""
    metric = metric_of(summary.get("objective"), summary["metric"])
    layout = f"{summary['mode']}, {summary['servers']} × {summary['intervals']} intervals"
    rows = [
        ("epochs", f"{summary['epochs']:,}, the best is {summary['best_epoch']:,}"),
        (f"test {metric.words}", words.measured(summary["test_accuracy"], metric)),
        (f"validation {metric.words}", words.measured(summary["val_accuracy"], metric)),
        (f"training {metric.words}", words.measured(summary["train_accuracy"], metric)),
        ("loss", words.number(summary["train_loss"])),
        ("epoch time", words.seconds(summary["seconds_per_epoch"])),
        ("total time", words.seconds(summary["seconds_total"])),
        ("work", layout),
        ("cost", words.usd(summary["cost_usd"]) if wanted(summary["cost"]) else words.NOTHING),
        ("saved in", summary["path"] or words.NOTHING),
    ]
    shown = [(name, value) for name, value in rows if value != words.NOTHING]
    return card(f"{summary['model']} on {summary['dataset']}", shown)

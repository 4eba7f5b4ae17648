"""A run's card in notebooks."""

from collections.abc import Mapping
from typing import Any

from siafu.base.card import card
from siafu.report import words


def run_card(summary: Mapping[str, Any]) -> str:
    """A small table of what came of it."""
    metric = str(summary["metric"]).replace("_", "-")
    layout = f"{summary['mode']}, {summary['servers']} × {summary['intervals']} intervals"
    rows = [
        ("epochs", f"{summary['epochs']:,}, the best is {summary['best_epoch']:,}"),
        (f"test {metric}", words.percent(summary["test_accuracy"])),
        (f"validation {metric}", words.percent(summary["val_accuracy"])),
        (f"training {metric}", words.percent(summary["train_accuracy"])),
        ("loss", words.number(summary["train_loss"])),
        ("an epoch takes", words.seconds(summary["seconds_per_epoch"])),
        ("in all", words.seconds(summary["seconds_total"])),
        ("work", layout),
        ("cost", words.usd(summary["cost_usd"])),
        ("saved in", summary["path"] or words.NOTHING),
    ]
    shown = [(name, value) for name, value in rows if value != words.NOTHING]
    return card(f"{summary['model']} on {summary['dataset']}", shown)

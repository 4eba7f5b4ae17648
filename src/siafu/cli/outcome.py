"""Results of a training, in words."""

import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.errors import BadInput
from siafu.objective.metric import metric_of

if TYPE_CHECKING:
    from siafu.report.files.metrics import EpochMetrics


_RISEN = 2.0  # times the first epoch's loss: less may be dropout's noise


def report_one(summary: dict[str, Any], say: Callable[[str], None]) -> None:
    """Scores, times, dollars, and what to do next."""
    from siafu.cost import elsewhere, run_prices
    from siafu.report.progress import duration

    path = shlex.quote(summary["path"])
    say(
        f"{scores(summary)}; best epoch {summary['best_epoch']} of {summary['epochs']}, "
        f"{duration(summary['seconds_total'])}, {duration(summary['seconds_per_epoch'])} an epoch"
    )
    cost = summary["cost"]
    paid = cost is not None and cost["lambda_compute_usd"] > 0
    if run_prices.wanted(cost):
        say(run_prices.told(cost, duration(summary["seconds_total"])))
        say(elsewhere.told(cost["alternatives"]))
    if summary["lambda"]["invocations"]:
        say(run_prices.told_lambdas(summary["lambda"], paid=paid))
    say(f"saved in {path}")
    say(f"next: siafu evaluate {path}")
    say(f"      siafu predict {path} -o predictions.csv")
    say(f"      siafu report {path}")


def risen_loss(history: "Sequence[EpochMetrics]") -> str | None:
    """A warning of a training whose loss ended far above where it began; None: it did not."""
    first, last = (history[place].train_loss for place in (0, -1))
    if last <= _RISEN * first:
        return None
    return f"warning: the training loss rose from {first:.4g} to {last:.4g}, so little was learnt: try a lower --lr, or --clip 1"


def report_many(summary: dict[str, Any], directory: Path, say: Callable[[str], None]) -> None:
    """Mean and deviation over seeds."""
    metric = metric_of(summary["objective"], summary["metric"])
    for split in ("test", "val", "train"):
        mean, deviation = summary[f"{split}_accuracy"], summary[f"{split}_accuracy_std"]
        if mean is not None:
            say(f"{split} {metric.words} {metric.told(mean, deviation)} over {len(summary['seeds'])} seeds")
    say(f"saved in {shlex.quote(str(directory))}")


def scores(summary: dict[str, Any]) -> str:
    """Score on each split."""
    metric = metric_of(summary["objective"], summary["metric"])
    parts = [
        f"{split} {metric.told(summary[f'{split}_accuracy'])}"
        for split in ("test", "val", "train")
        if summary[f"{split}_accuracy"] is not None
    ]
    return f"{metric.words}: {', '.join(parts)}"


def refuse_other_summary(path: Path) -> None:
    """Refuse to replace a file that is not what several runs came to."""
    if not os.path.lexists(path):
        return
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not {"seeds", "runs"} <= found.keys():
        raise BadInput(
            f"{path} is not a summary of several runs, so it is not replaced: choose another --out"
        )

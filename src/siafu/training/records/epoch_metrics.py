"""Metrics of an epoch, out of the record that the runtime gives."""

import time
from typing import Any

from siafu.base.activity import together
from siafu.graph.stores.content import SPLITS
from siafu.objective.objective import Objective
from siafu.objective.tally import decode
from siafu.report.files.metrics import EpochMetrics
from siafu.report.lambda_metrics import lambda_metrics
from siafu.runtime.happenings import EpochRecord


def metrics_of(record: EpochRecord, objective: Objective) -> EpochMetrics:
    """Loss, scores and times of an epoch, in the form in which they are written."""
    tallies = {} if record.evaluation is None else decode(record.evaluation)
    accuracies: dict[str, Any] = {
        f"{split}_accuracy": objective.measured(tallies[split]) if split in tallies else None
        for split in SPLITS
    }
    return EpochMetrics(
        epoch=record.epoch + 1,
        train_loss=record.training[0],
        val_loss=tallies["val"].loss if "val" in tallies else None,
        **accuracies,
        seconds=record.seconds,
        evaluate_seconds=record.evaluate_seconds if tallies else None,
        time=time.time(),
        busy_seconds=together(record.activity.threads),
        staleness=dict(record.activity.staleness),
        bytes_scattered=record.activity.bytes_scattered,
        lambdas=lambda_metrics(record.activity),
    )

"""RunRecord: everything in a run's directory, whether it has finished, goes on, or was cut off."""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.objective.metric import Metric, metric_of_run
from siafu.report.files.metrics import EpochMetrics, best_epoch, read_metrics
from siafu.report.files.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as its files have it.

    name:    of its directory, fit to be shown
    config:  what was asked for
    summary: what came of it; {}: it has not finished
    facts:   what was found when it began; {}: an earlier version's run
    history: what each epoch measured
    """

    name: str
    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    facts: dict[str, Any]
    history: list[EpochMetrics]

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @property
    def best(self) -> EpochMetrics | None:
        return best_epoch(self.history, self.metric)

    @property
    def metric(self) -> Metric:
        """The metric that its accuracies are of."""
        return metric_of_run(self.config)

    def section(self, name: str) -> dict[str, Any]:
        """A part of what was asked for: graph, model, training."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    def counted(self, name: str) -> dict[str, int]:
        """A histogram: of the summary, or where that is missing, of the epochs so far."""
        found = self.summary.get(name)
        if isinstance(found, dict):
            return {str(key): value for key, value in found.items() if isinstance(value, int)}
        told = [epoch.staleness or {} for epoch in self.history if name == "staleness_histogram"]
        return dict(sum(map(Counter, told), Counter()))

    def busy_seconds(self) -> dict[str, float]:
        """Seconds of an epoch by kind of task, over all threads: the mean over all epochs but the first, which warms up."""
        epochs = [epoch.busy_seconds for epoch in self.history[1:] or self.history if epoch.busy_seconds]
        kinds = dict.fromkeys(kind for each in epochs for kind in each)
        return {kind: sum(each.get(kind, 0.0) for each in epochs) / len(epochs) for kind in kinds}


def read_run(path: Path) -> RunRecord:
    """Read the run at `path`; refused if there is none, or if it has not ended an epoch yet."""
    directory = RunDirectory(path)
    config = directory.config()
    try:
        summary = directory.summary() if directory.finished else {}
    except BadInput:
        summary = {}
    history = read_metrics(directory.metrics_path)
    if not history:
        raise BadInput(f"{path} has no epoch that has ended: wait for the first")
    return RunRecord(shown_name(path), path, config, summary, directory.facts(), history)


def shown_name(path: Path) -> str:
    """A directory's name as text that can be written: file names may be any bytes."""
    return os.fsencode(path.resolve().name).decode("utf-8", "replace")

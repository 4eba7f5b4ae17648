"""Time to accuracy: one model trained on the whole graph, exactly and asynchronously, and on samples, side by side."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch

from siafu import nn
from siafu.base.errors import BadInput
from siafu.bench.results import markdown, read_results, save_results
from siafu.graph import Graph
from siafu.training.run import Run
from siafu.training.train import train

EXACT, ASYNC, SAMPLED = "whole graph", "whole graph, async", "sampled"
WAYS = (EXACT, ASYNC, SAMPLED)

MARGIN = 0.005
"""Distance below the best accuracy of the exact way that still counts as reached: half a point."""

_TIMED = 5
"""Epochs without evaluations whose CPU seconds are taken, after the first."""


@dataclass(frozen=True, slots=True)
class AccuracySetting:
    """Options that every way trains with, and those of samples; the others are `siafu.train`'s defaults.

    epochs:         at most; every way ends after `patience` epochs without a better one
    intervals:      of the asynchronous way: the more, the looser
    fanout, batch:  of the sampled way
    """

    model: str
    hidden: int
    layers: int
    dropout: float
    epochs: int
    patience: int
    lr: float
    normalize_features: bool
    intervals: int
    fanout: str
    batch: int
    seeds: int

    def options(self, way: str) -> dict[str, Any]:
        """Keywords of `siafu.train` that are particular to a way."""
        if way == EXACT:
            return {"mode": "pipe"}
        if way == ASYNC:
            return {"mode": "async", "staleness": 0, "intervals": self.intervals}
        return {"mode": "sampled", "fanout": self.fanout, "batch": self.batch}


@dataclass(frozen=True, slots=True)
class AccuracyTrial:
    """One training.

    val:     the validation accuracy after each epoch
    seconds: of training after each epoch, from the beginning, evaluations left out
    test:    the test accuracy at the best validation accuracy
    """

    seed: int
    val: list[float]
    seconds: list[float]
    test: float

    def reached(self, target: float) -> int | None:
        """The epoch, from 1, after which it first is at the target; None: it never is."""
        return next((epoch for epoch, found in enumerate(self.val, 1) if found >= target), None)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Trainings of every way on one dataset.

    trials: by way
    cpu:    CPU seconds of an epoch, of all threads together, by way: of a short training without evaluations
    """

    dataset: str
    setting: AccuracySetting
    trials: dict[str, list[AccuracyTrial]]
    cpu: dict[str, float]

    @property
    def target(self) -> float:
        """The validation accuracy to reach: `MARGIN` below the best of the exact way, the mean over seeds."""
        return statistics.fmean(max(each.val) for each in self.trials[EXACT]) - MARGIN

    def reached(self, way: str) -> list[tuple[int, float]]:
        """Epochs and seconds to the target of each trial that reaches it."""
        found = [(each, each.reached(self.target)) for each in self.trials[way]]
        return [(epoch, each.seconds[epoch - 1]) for each, epoch in found if epoch is not None]

    def best(self, way: str) -> tuple[float, float]:
        """Means over seeds: of the best validation accuracy, and of the test accuracy there."""
        trials = self.trials[way]
        return statistics.fmean(max(each.val) for each in trials), statistics.fmean(
            each.test for each in trials
        )


def measure(graph: Graph, setting: AccuracySetting, told: Callable[[str], None]) -> Accuracy:
    """Train in every way with every seed, one after the other; `told` of each as it ends."""
    if graph.val is None or graph.test is None:
        raise BadInput(
            f"graph {graph.name!r} has no validation and test splits, which accuracy is measured on: give it both"
        )
    trials: dict[str, list[AccuracyTrial]] = {way: [] for way in WAYS}
    for seed in range(setting.seeds):
        for way in WAYS:
            trial = _trial(graph, setting, seed, way)
            trials[way].append(trial)
            told(
                f"{graph.name}, seed {seed}, {way}: best val {max(trial.val):.4f}, test {trial.test:.4f}, "
                f"{len(trial.val)} epochs in {trial.seconds[-1]:.1f} s"
            )
    return Accuracy(graph.name, setting, trials, {way: _cpu_seconds(graph, setting, way) for way in WAYS})


def _trial(graph: Graph, setting: AccuracySetting, seed: int, way: str) -> AccuracyTrial:
    run = _trained(graph, setting, seed, way, epochs=setting.epochs, patience=setting.patience)
    val = [epoch.val_accuracy for epoch in run.history if epoch.val_accuracy is not None]
    seconds = list(accumulate(epoch.seconds for epoch in run.history))
    return AccuracyTrial(seed, val, seconds, run.summary()["test_accuracy"])


def _cpu_seconds(graph: Graph, setting: AccuracySetting, way: str) -> float:
    """CPU seconds of an epoch, the median of some; what else runs on the machine does not count."""
    ends: list[float] = []
    _trained(
        graph,
        setting,
        0,
        way,
        epochs=_TIMED + 2,
        evaluate_every=_TIMED + 2,
        callbacks=[lambda _: ends.append(time.process_time())],
    )
    return statistics.median(after - before for before, after in pairwise(ends[:-1]))  # the last is evaluated


def _trained(graph: Graph, setting: AccuracySetting, seed: int, way: str, **options: Any) -> Run:
    torch.manual_seed(seed)
    model = nn.MODELS[setting.model](
        graph.num_features, setting.hidden, setting.layers, graph.num_classes, setting.dropout
    )
    options |= {"lr": setting.lr, "seed": seed, "normalize_features": setting.normalize_features}
    return train(graph, model, **setting.options(way), **options)


_HEAD = ["dataset", "way", "target, val %", "reached", "epochs to it", "seconds to it", "CPU seconds to it"]
_HEAD += ["× whole graph, CPU", "CPU ms an epoch", "best val, %", "test there, %"]


def table(results: Sequence[Accuracy]) -> str:
    """Everything as one table in Markdown."""
    return markdown(_HEAD, [_row(result, way) for result in results for way in WAYS])


def _row(result: Accuracy, way: str) -> list[str]:
    reached, exact, trials = result.reached(way), result.reached(EXACT), result.trials[way]
    epochs, seconds = (statistics.fmean(each) for each in zip(*reached, strict=True)) if reached else (0, 0)
    val, test = result.best(way)
    cpu = epochs * result.cpu[way]
    whole = statistics.fmean(each for each, _ in exact) * result.cpu[EXACT] if exact else None
    return [
        result.dataset if way == EXACT else "",
        way,
        f"{100 * result.target:.1f}" if way == EXACT else "",
        f"{len(reached)} of {len(trials)}",
        f"{epochs:.0f}" if reached else "never",
        f"{seconds:.2f}" if reached else "never",
        f"{cpu:.2f}" if reached else "never",
        "" if way == EXACT or whole is None or not reached else f"{cpu / whole:.2f}",
        f"{1000 * result.cpu[way]:.1f}",
        f"{100 * val:.2f}",
        f"{100 * test:.2f}",
    ]


def save(results: Sequence[Accuracy], path: Path) -> None:
    """Write results, beside those of other datasets that the file holds."""
    kept = [each for each in read(path) if each.dataset not in {new.dataset for new in results}]
    save_results([*kept, *results], path)


def read(path: Path) -> list[Accuracy]:
    """Results that `save` wrote; nothing where there is no such file."""
    return read_results(path, "accuracy", Accuracy)

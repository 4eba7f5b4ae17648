"""Time to accuracy: one model trained on the whole graph, exactly and asynchronously, and on samples, side by side."""

import statistics
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
from siafu.training.train import train

EXACT, ASYNC, SAMPLED = "whole graph", "whole graph, async", "sampled"
WAYS = (EXACT, ASYNC, SAMPLED)

MARGIN = 0.005
"""Distance below the best accuracy of the exact way that still counts as reached: half a point."""


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
    """Trainings of every way on one dataset; `trials` by way."""

    dataset: str
    setting: AccuracySetting
    trials: dict[str, list[AccuracyTrial]]

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

    def epoch_seconds(self, way: str) -> float:
        """The median over the epochs of all trials, the first of each left out: it compiles and warms up."""
        found: list[float] = []
        for each in self.trials[way]:
            epochs = [after - before for before, after in pairwise([0.0, *each.seconds])]
            found += epochs[1:] or epochs
        return statistics.median(found)


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
    return Accuracy(graph.name, setting, trials)


def _trial(graph: Graph, setting: AccuracySetting, seed: int, way: str) -> AccuracyTrial:
    torch.manual_seed(seed)
    model = nn.MODELS[setting.model](
        graph.num_features, setting.hidden, setting.layers, graph.num_classes, setting.dropout
    )
    run = train(
        graph,
        model,
        epochs=setting.epochs,
        patience=setting.patience,
        lr=setting.lr,
        seed=seed,
        normalize_features=setting.normalize_features,
        **setting.options(way),
    )
    val = [epoch.val_accuracy for epoch in run.history if epoch.val_accuracy is not None]
    seconds = list(accumulate(epoch.seconds for epoch in run.history))
    return AccuracyTrial(seed, val, seconds, run.summary()["test_accuracy"])


_HEAD = ["dataset", "way", "target, val %", "reached", "epochs to it", "seconds to it", "× whole graph"]
_HEAD += ["ms an epoch", "best val, %", "test there, %"]


def table(results: Sequence[Accuracy]) -> str:
    """Everything as one table in Markdown."""
    return markdown(_HEAD, [_row(result, way) for result in results for way in WAYS])


def _row(result: Accuracy, way: str) -> list[str]:
    reached, exact, trials = result.reached(way), result.reached(EXACT), result.trials[way]
    epochs, seconds = (statistics.fmean(each) for each in zip(*reached, strict=True)) if reached else (0, 0)
    val, test = result.best(way)
    ratio = seconds / statistics.fmean(each for _, each in exact) if reached and exact else None
    return [
        result.dataset if way == EXACT else "",
        way,
        f"{100 * result.target:.1f}" if way == EXACT else "",
        f"{len(reached)} of {len(trials)}",
        f"{epochs:.0f}" if reached else "never",
        f"{seconds:.2f}" if reached else "never",
        "" if way == EXACT or ratio is None else f"{ratio:.2f}",
        f"{1000 * result.epoch_seconds(way):.1f}",
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

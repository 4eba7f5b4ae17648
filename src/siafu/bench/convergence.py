"""Effect of asynchrony on learning: one training in every mode, over several seeds."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from siafu import nn
from siafu.base.errors import BadInput
from siafu.bench.results import markdown, read_results, save_results
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.training.placement import choose_partition
from siafu.training.train import train

VARIANTS: dict[str, dict[str, Any]] = {
    "pipe": {"mode": "pipe"},
    "async, S=0": {"mode": "async", "staleness": 0},
    "async, S=1": {"mode": "async", "staleness": 1},
    "async, S=1, 2bw": {"mode": "async", "staleness": 1, "weights": "2bw"},
    "async, S=1, flush": {"mode": "async", "staleness": 1, "weights": "flush"},
}
EXACT = "pipe"

MARGIN = 0.005
"""Distance below the exact mode's best accuracy that still counts as reached: half a point."""


@dataclass(frozen=True, slots=True)
class ConvergenceSetting:
    """Options that every variant trains with; the others are `siafu.train`'s defaults."""

    model: str
    hidden: int
    layers: int
    dropout: float
    epochs: int
    lr: float
    normalize_features: bool
    servers: int
    intervals: int
    seeds: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One training.

    val:      the validation accuracy after each epoch
    test:     the test accuracy at the best of them
    counters: what the pipeline counted
    """

    seed: int
    val: list[float]
    test: float
    counters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Convergence:
    """Trainings of every variant on one dataset; `trials` by variant."""

    dataset: str
    setting: ConvergenceSetting
    trials: dict[str, list[Trial]]

    @property
    def target(self) -> float:
        """The accuracy to reach: `MARGIN` below the highest point of the exact mode's curve."""
        return max(self.curve(EXACT)) - MARGIN

    def curve(self, variant: str) -> list[float]:
        """The validation accuracy after each epoch, the mean over seeds."""
        return [
            statistics.fmean(epoch)
            for epoch in zip(*(each.val for each in self.trials[variant]), strict=True)
        ]

    def epochs_to_target(self, variant: str) -> int | None:
        """The epoch, from 1, after which the curve first is at the target; None: it never is."""
        reached = (epoch for epoch, accuracy in enumerate(self.curve(variant), 1) if accuracy >= self.target)
        return next(reached, None)

    def ratio(self, variant: str) -> float | None:
        """Epochs to the target, relative to those of the exact mode."""
        epochs, exact = self.epochs_to_target(variant), self.epochs_to_target(EXACT)
        return None if epochs is None or exact is None else epochs / exact

    def test(self, variant: str) -> tuple[float, float]:
        """The test accuracy's mean and sample standard deviation over seeds."""
        found = [each.test for each in self.trials[variant]]
        return statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else 0.0

    def peak(self, variant: str, counter: str) -> int:
        """The highest that a counter of peaks was in any trial."""
        return max(int(each.counters[counter]) for each in self.trials[variant])

    def row_ages(self, variant: str) -> dict[int, float]:
        """The share of rows read that were so many epochs old (negative: newer than the reader)."""
        ages: Counter[str] = sum(
            (Counter(each.counters["row_age_histogram"]) for each in self.trials[variant]), Counter()
        )
        return {int(age): ages[age] / ages.total() for age in sorted(ages, key=int)}


def measure(graph: Graph, setting: ConvergenceSetting, told: Callable[[str], None]) -> Convergence:
    """Train every variant with every seed; `told` of each as it ends."""
    if graph.val is None or graph.test is None:
        raise BadInput(
            f"graph {graph.name!r} has no validation and test splits, which convergence is measured on: give it both"
        )
    partition = choose_partition(graph, setting.servers, "auto")
    trials: dict[str, list[Trial]] = {variant: [] for variant in VARIANTS}
    for seed in range(setting.seeds):
        for variant, options in VARIANTS.items():
            trial = _trial(graph, setting, partition, seed, options)
            trials[variant].append(trial)
            told(
                f"{graph.name}, seed {seed}, {variant}: test {trial.test:.4f}, best val {max(trial.val):.4f}"
            )
    return Convergence(graph.name, setting, trials)


def _trial(
    graph: Graph, setting: ConvergenceSetting, partition: Partition, seed: int, options: dict[str, Any]
) -> Trial:
    torch.manual_seed(seed)
    model = nn.MODELS[setting.model](
        graph.num_features, setting.hidden, setting.layers, graph.num_classes, setting.dropout
    )
    run = train(
        graph,
        model,
        epochs=setting.epochs,
        lr=setting.lr,
        seed=seed,
        normalize_features=setting.normalize_features,
        servers=setting.servers,
        intervals=setting.intervals,
        partition=partition,
        **options,
    )
    val = [epoch.val_accuracy for epoch in run.history if epoch.val_accuracy is not None]
    return Trial(seed, val, run.summary()["test_accuracy"], run.counters)


_HEAD = ["dataset", "variant", "test accuracy, %", "less pipe", "epochs to target", "× pipe"]
_HEAD += ["highest staleness", "versions", "ages of rows read"]


def table(results: Sequence[Convergence]) -> str:
    """Everything as one table in Markdown."""
    return markdown(_HEAD, [_row(result, variant) for result in results for variant in result.trials])


def _row(result: Convergence, variant: str) -> list[str]:
    (mean, deviation), (exact, _) = result.test(variant), result.test(EXACT)
    epochs, ratio = result.epochs_to_target(variant), result.ratio(variant)
    ages = ", ".join(f"{age}: {share:.0%}" for age, share in result.row_ages(variant).items())
    return [
        result.dataset if variant == EXACT else "",
        variant,
        f"{100 * mean:.2f} ± {100 * deviation:.2f}",
        "" if variant == EXACT else f"{100 * (mean - exact):+.2f}",
        "never" if epochs is None else str(epochs),
        "" if variant == EXACT else "" if ratio is None else f"{ratio:.2f}",
        str(result.peak(variant, "max_staleness_seen")),
        str(result.peak(variant, "weight_versions_peak")),
        ages,
    ]


def save(results: Sequence[Convergence], path: Path) -> None:
    """Write results, beside those of other datasets that the file holds."""
    kept = [each for each in read(path) if each.dataset not in {new.dataset for new in results}]
    save_results([*kept, *results], path)


def read(path: Path) -> list[Convergence]:
    """Results that `save` wrote; nothing where there is no such file."""
    return read_results(path, "convergence", Convergence)

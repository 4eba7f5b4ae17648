"""What asynchrony does to learning: one training in every mode, over several seeds."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from siafu import nn
from siafu.base.errors import BadInput
from siafu.base.files import replacing
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
"""How far below the best of the exact mode an accuracy may lie and still count as reached: half a point."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How every variant trains; the rest is as `siafu.train` has it."""

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
    """What every variant came to on one dataset; `trials` by variant."""

    dataset: str
    setting: Setting
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
        """How many times the exact mode's epochs a variant takes to the target."""
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
        return {
            int(age): count / ages.total()
            for age, count in sorted(ages.items(), key=lambda each: int(each[0]))
        }


def measure(graph: Graph, setting: Setting, told: Callable[[str], None]) -> Convergence:
    """Train every variant with every seed; `told` of each as it ends."""
    name = graph.name
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
            told(f"{name}, seed {seed}, {variant}: test {trial.test:.4f}, best val {max(trial.val):.4f}")
    return Convergence(name, setting, trials)


def _trial(graph: Graph, setting: Setting, partition: Partition, seed: int, options: dict[str, Any]) -> Trial:
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


def table(results: Sequence[Convergence]) -> str:
    """Everything as one table in Markdown."""
    head = [
        "dataset",
        "variant",
        "test accuracy, %",
        "less pipe",
        "epochs to target",
        "× pipe",
        "highest staleness",
        "versions",
        "ages of rows read",
    ]
    rows = [_row(result, variant) for result in results for variant in result.trials]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


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
    with replacing(path) as file:
        file.write(json.dumps([asdict(each) for each in (*kept, *results)]).encode())


def read(path: Path) -> list[Convergence]:
    """What `save` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    try:
        return [_from_json(each) for each in json.loads(path.read_text())]
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path} does not hold results of 'siafu bench convergence': {error}") from error


def _from_json(found: dict[str, Any]) -> Convergence:
    trials = {variant: [Trial(**each) for each in these] for variant, these in found["trials"].items()}
    return Convergence(found["dataset"], Setting(**found["setting"]), trials)

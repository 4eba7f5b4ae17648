"""Time to accuracy: one model trained on the whole graph, exactly and asynchronously, and on samples, side by side."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from siafu.base.errors import BadInput
from siafu.bench.accuracy_peer import DglSampled
from siafu.bench.accuracy_trial import (
    EXACT,
    PEER,
    WAYS,
    AccuracySetting,
    AccuracyTrial,
    OwnTraining,
    Trains,
)
from siafu.bench.results import markdown, read_results, save_results
from siafu.cost.instances import Instance
from siafu.cost.money import dollars
from siafu.graph import Graph

MARGIN = 0.005
"""Distance below the best accuracy of the exact way that still counts as reached: half a point."""

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Trainings of every way on one dataset.

    trials:   by way
    rates:    the learning rate of each way
    cpu:      CPU seconds of an epoch, of all threads together, by way, without evaluations
    instance: the machine whose price dollars are of; usd: of its CPU second
    """

    dataset: str
    setting: AccuracySetting
    trials: dict[str, list[AccuracyTrial]]
    rates: dict[str, float]
    cpu: dict[str, float]
    instance: str
    usd: float

    @property
    def target(self) -> float:
        """The validation accuracy to reach: `MARGIN` below the best of the exact way, the mean over seeds."""
        return fmean(each.best for each in self.trials[EXACT]) - MARGIN

    def reached(self, way: str) -> list[tuple[int, float]]:
        """Epochs and seconds to the target of each trial that reaches it."""
        found = [(each, each.reached(self.target)) for each in self.trials[way]]
        return [(epoch, each.seconds[epoch - 1]) for each, epoch in found if epoch is not None]

    def best(self, way: str) -> tuple[float, float]:
        """Means over seeds: of the best validation accuracy, and of the test accuracy there."""
        trials = self.trials[way]
        return fmean(each.best for each in trials), fmean(each.test for each in trials)


def measure(
    graph: Graph,
    setting: AccuracySetting,
    instance: Instance,
    told: Callable[[str], None],
    peers: Path | None = None,
) -> Accuracy:
    """Train in every way with every seed, one after the other; `told` of each as it ends.

    peers: the Python of an environment with DGL, whose sampling is one more way
    """
    if graph.val is None or graph.test is None:
        raise BadInput(
            f"graph {graph.name!r} has no validation and test splits, which accuracy is measured on: give it both"
        )
    with ExitStack() as stack:
        trains: dict[str, Trains] = {way: OwnTraining(graph, setting, way) for way in WAYS}
        if peers is not None:
            trains[PEER] = stack.enter_context(DglSampled(graph, setting, peers))
        return _measured(graph.name, setting, instance, told, trains)


def _measured(
    name: str,
    setting: AccuracySetting,
    instance: Instance,
    told: Callable[[str], None],
    trains: Mapping[str, Trains],
) -> Accuracy:
    def trial(way: str, seed: int, rate: float) -> AccuracyTrial:
        found = trains[way].trial(seed, rate)
        told(
            f"{name}, seed {seed}, {way}, learning rate {rate:g}: best val {found.best:.4f}, test {found.test:.4f}, "
            f"{len(found.val)} epochs in {found.seconds[-1]:.1f} s"
        )
        return found

    tried = {rate: {way: trial(way, 0, rate) for way in trains} for rate in setting.rates}
    rates = {way: best_rate({rate: each[way] for rate, each in tried.items()}) for way in trains}
    trials = {way: [tried[rate][way]] for way, rate in rates.items()}
    for seed in range(1, setting.seeds):
        for way, rate in rates.items():
            trials[way].append(trial(way, seed, rate))
    cpu = {way: trains[way].cpu_seconds(rate) for way, rate in rates.items()}
    usd = instance.on_demand_usd_h / _HOUR / instance.vcpu
    return Accuracy(name, setting, trials, rates, cpu, instance.name, usd)


def best_rate(tried: Mapping[float, AccuracyTrial]) -> float:
    """The learning rate that is first, by epochs, at `MARGIN` below the best accuracy of all of them."""
    goal = max(each.best for each in tried.values()) - MARGIN
    return min(tried, key=lambda rate: tried[rate].reached(goal) or math.inf)


_HEAD = ["dataset", "way", "learning rate", "target, val %", "reached", "epochs to it", "seconds to it"]
_HEAD += ["CPU seconds to it", "dollars to it", "× whole graph, CPU", "CPU ms an epoch", "best val, %"]
_HEAD += ["test there, %"]


def table(results: Sequence[Accuracy]) -> str:
    """Everything as one table in Markdown."""
    return markdown(_HEAD, [_row(result, way) for result in results for way in result.trials])


def _row(result: Accuracy, way: str) -> list[str]:
    reached, exact, trials = result.reached(way), result.reached(EXACT), result.trials[way]
    epochs, seconds = (fmean(each) for each in zip(*reached, strict=True)) if reached else (0, 0)
    val, test = result.best(way)
    cpu = epochs * result.cpu[way]
    whole = fmean(each for each, _ in exact) * result.cpu[EXACT] if exact else None
    return [
        result.dataset if way == EXACT else "",
        way,
        f"{result.rates[way]:g}",
        f"{100 * result.target:.1f}" if way == EXACT else "",
        f"{len(reached)} of {len(trials)}",
        f"{epochs:.0f}" if reached else "never",
        f"{seconds:.2f}" if reached else "never",
        f"{cpu:.2f}" if reached else "never",
        dollars(cpu * result.usd) if reached else "never",
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

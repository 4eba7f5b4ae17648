"""Trials of `siafu bench accuracy`: one training with one learning rate, and who trains."""

import math
import time
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, Protocol

import torch

from siafu import nn
from siafu.base.errors import BadInput, Diverged
from siafu.graph import Graph
from siafu.training.run import Run
from siafu.training.train import train

EXACT, ASYNC, SAMPLED, PEER = "whole graph", "whole graph, async", "sampled", "DGL, sampled"
WAYS = (EXACT, ASYNC, SAMPLED)
"""Siafu's."""

_TIMED = 5
"""Epochs without evaluations whose CPU seconds are taken, after the first."""


@dataclass(frozen=True, slots=True)
class AccuracySetting:
    """Options that every way trains with, and those of samples; the others are `siafu.train`'s defaults.

    epochs:         at most; every way ends after `patience` epochs without a better one
    rates:          learning rates; every way tries them all, and trains on with its own
    intervals:      of the asynchronous way: the more, the looser
    fanout, batch:  of the sampled ways
    """

    model: str
    hidden: int
    layers: int
    dropout: float
    epochs: int
    patience: int
    rates: list[float]
    normalize_features: bool
    intervals: int
    fanout: str
    batch: int
    seeds: int

    def __post_init__(self) -> None:
        wrong = [rate for rate in self.rates if not 0 < rate < math.inf]
        if wrong:
            raise BadInput(f"lr is {wrong[0]:g}: give a learning rate above 0")

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

    @property
    def best(self) -> float:
        return max(self.val)

    def reached(self, target: float) -> int | None:
        """The epoch, from 1, after which it first is at the target; None: it never is."""
        return next((epoch for epoch, found in enumerate(self.val, 1) if found >= target), None)


class Trains(Protocol):
    """A way to train."""

    def trial(self, seed: int, rate: float) -> AccuracyTrial: ...

    def cpu_seconds(self, rate: float) -> float:
        """CPU seconds of an epoch, of all threads together, evaluations left out."""
        ...


class OwnTraining:
    """Siafu's training in one of its ways."""

    def __init__(self, graph: Graph, setting: AccuracySetting, way: str) -> None:
        self._graph, self._setting, self._way = graph, setting, way

    def trial(self, seed: int, rate: float) -> AccuracyTrial:
        setting = self._setting
        try:
            run = self._trained(seed, rate, epochs=setting.epochs, patience=setting.patience)
        except Diverged:  # at this rate, which another may be better than
            return AccuracyTrial(seed, [0.0], [0.0], 0.0)
        val = [epoch.val_accuracy for epoch in run.history if epoch.val_accuracy is not None]
        seconds = list(accumulate(epoch.seconds for epoch in run.history))
        return AccuracyTrial(seed, val, seconds, run.summary()["test_accuracy"])

    def cpu_seconds(self, rate: float) -> float:
        """The median of a short training's; what else runs on the machine does not count."""
        ends: list[float] = []
        self._trained(
            0,
            rate,
            epochs=_TIMED + 2,
            evaluate_every=_TIMED + 2,
            callbacks=[lambda _: ends.append(time.process_time())],
        )
        return median(after - before for before, after in pairwise(ends[:-1]))  # the last is evaluated

    def _trained(self, seed: int, rate: float, **options: Any) -> Run:
        torch.manual_seed(seed)
        setting, graph = self._setting, self._graph
        model = nn.MODELS[setting.model](
            graph.num_features, setting.hidden, setting.layers, graph.num_classes, setting.dropout
        )
        options |= {"lr": rate, "seed": seed, "normalize_features": setting.normalize_features}
        return train(graph, model, **setting.options(self._way), **options)

"""Trainings of a small model, and trainings that are stopped on the way."""

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import siafu
from siafu.base.errors import Interrupted
from siafu.graph import Graph
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress

FOREVER = 10**6  # epochs of a run that is stopped


def gcn(graph: Graph, *, dropout: float = 0.5, seed: int = 0, **options: Any) -> nn.Module:
    """A small GCN for `graph`."""
    torch.manual_seed(seed)
    return siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=dropout, **options)


def timeless(history: list[EpochMetrics]) -> list[EpochMetrics]:
    """What each epoch measured, but for the times it took."""
    measured = {each.name for each in dataclasses.fields(EpochMetrics) if each.default is dataclasses.MISSING}
    kept = measured - {"seconds", "evaluate_seconds"}
    return [
        EpochMetrics(**{name: getattr(epoch, name) for name in kept}, seconds=0.0, evaluate_seconds=0.0)
        for epoch in history
    ]


def losses(run: siafu.Run) -> list[float]:
    return [epoch.train_loss for epoch in run.history]


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class StopAt(Progress):
    """Presses Ctrl-C when it hears of an epoch."""

    def __init__(self, epoch: int, number: signal.Signals = signal.SIGINT) -> None:
        self.epoch = epoch
        self.number = number
        self.told: list[signal.Signals] = []

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == self.epoch:
            signal.raise_signal(self.number)

    def stopping(self, number: signal.Signals) -> None:
        self.told.append(number)


def stopped(graph: Graph, model: nn.Module, out: Path, progress: StopAt, **options: Any) -> Interrupted:
    """Start a run that would never end, and have it stopped."""
    with pytest.raises(Interrupted) as caught:
        siafu.train(graph, model, epochs=FOREVER, out=out, progress=progress, **options)
    return caught.value


def epochs_in(out: Path) -> list[int]:
    """The epochs that a run's directory tells of."""
    return [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()]

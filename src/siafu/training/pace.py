"""Pace: the rates of every epoch's update, decided in the run's own process: by a scheduler of torch's and by callbacks."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.report.files.metrics import EpochMetrics
from siafu.training.scheduler import Scheduler, make_scheduler
from siafu.weights.groups import GroupRates, ParameterGroup

_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(slots=True, eq=False)
class EpochEnd:
    """An epoch that has ended, for a callback.

    metrics:   what the epoch measured
    history:   every epoch so far; the last is this one
    optimizer: a stand-in with the run's groups of parameters. What is changed in its `param_groups` (lr, weight_decay, betas)
               holds for the epochs that follow
    """

    metrics: EpochMetrics
    history: Sequence[EpochMetrics]
    optimizer: torch.optim.Optimizer
    stopped: bool = False

    @property
    def lr(self) -> float:
        """Learning rate of the next epoch, of the first group; set: of all groups."""
        return float(self.optimizer.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = value

    def stop(self) -> None:
        """End the run here, as if it had no more epochs."""
        self.stopped = True


Callback = Callable[[EpochEnd], Any]


class Pace:
    """Rates by epoch.

    closes: whether rates depend on what epochs measure, so that one begins when the one before was seen
    """

    def __init__(
        self,
        optimizer: str,
        groups: Sequence[ParameterGroup],
        scheduler: Any,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._kind, self._groups, self._scheduler, self._callbacks = optimizer, groups, scheduler, callbacks
        if not all(map(callable, callbacks)):
            raise BadInput("callbacks has something that cannot be called: give functions of an EpochEnd")
        self._lock = threading.Lock()
        self._rates: list[tuple[float, ...]] = []
        self._given: dict[int, tuple[float, ...]] = {}
        self._begin()
        self.closes = bool(callbacks) or self._steps.needs_measures

    def rates(self, epoch: int) -> tuple[float, ...]:
        """Rates of an epoch's update, counted from 0, of all groups. Any thread may ask.

        An asynchronous run enters epochs before those before them are closed: with the rates that are decided by then.
        """
        with self._lock:
            while len(self._rates) <= epoch and not self.closes:
                self._steps.step(None)
                self._rates.append(self._read())
            self._given[epoch] = found = self._rates[min(epoch, len(self._rates) - 1)]
            return found

    def lr(self, epoch: int) -> float:
        """Learning rate that an epoch was given, of the first group."""
        return self._given[epoch][0]

    def close(self, history: Sequence[EpochMetrics]) -> bool:
        """Decide the rates that follow the last epoch of `history`; whether the run is to stop."""
        self._steps.step(history[-1])
        end = EpochEnd(history[-1], tuple(history), self._optimizer)
        for callback in self._callbacks:
            callback(end)
        with self._lock:
            self._rates.append(self._read())
        return end.stopped

    def go_back(self, history: Sequence[EpochMetrics], rates: tuple[float, ...] | None = None) -> None:
        """Be as after the last epoch of `history`.

        rates: those that were decided by then; None: they are known here, or follow from the history
        """
        known = self._rates[: len(history) + 1]
        self._begin()
        for past in history:
            self._steps.step(past)
            self._rates.append(self._read())
        if rates is None and len(known) == len(self._rates):
            self._rates, rates = known, known[-1]
        if rates is not None:
            self._write(rates)
            self._rates[-1] = rates

    def state(self) -> Tensor:
        """The next epoch's rates, as a checkpoint holds them."""
        return torch.tensor(self._rates[-1], dtype=torch.float64)

    @property
    def num_groups(self) -> int:
        return len(self._groups)

    def _begin(self) -> None:
        # One number stands for the parameters of a group: nothing but its settings counts.
        made = [
            {
                "params": [torch.nn.Parameter(torch.zeros(()))],
                "lr": each.lr,
                "weight_decay": each.weight_decay,
            }
            for each in self._groups
        ]
        self._optimizer = _OPTIMIZERS[self._kind](made)
        self._steps = Scheduler(make_scheduler(self._scheduler, self._optimizer), self._optimizer)
        self._rates = [self._read()]

    def _read(self) -> tuple[float, ...]:
        found: list[float] = []
        for group in self._optimizer.param_groups:
            betas = group.get("betas", (0.0, 0.0))
            rates = GroupRates(*map(float, (group["lr"], group["weight_decay"], *betas)))
            if not all(0 <= each < float("inf") for each in rates.numbers()):
                raise BadInput(f"a scheduler or callback set {rates}: give finite numbers from 0 up")
            found += rates.numbers()
        return tuple(found)

    def _write(self, rates: tuple[float, ...]) -> None:
        for place, group in enumerate(self._optimizer.param_groups):
            found = GroupRates.of(rates, place)
            group["lr"], group["weight_decay"] = found.lr, found.weight_decay
            if "betas" in group:
                group["betas"] = (found.beta1, found.beta2)

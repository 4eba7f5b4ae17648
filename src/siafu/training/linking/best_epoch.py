"""The loop of trainings by plain autograd (links, ranks): epochs, early stopping, and the weights of the best."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from torch import nn

from siafu.base.errors import Diverged


class LoopOptions(Protocol):
    """How long to go on: as the options of `siafu.train` have it."""

    @property
    def epochs(self) -> int: ...
    @property
    def evaluate_every(self) -> int: ...
    @property
    def patience(self) -> int | None: ...


class LoopEpoch(Protocol):
    """An epoch, counted from 1, and its measures on the validation part; None: it was not evaluated."""

    @property
    def epoch(self) -> int: ...
    @property
    def val(self) -> Mapping[str, float] | None: ...


class Learnt(Protocol):
    """A module that is trained, or anything else that gives its state and takes it back."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> Any: ...
    def eval(self) -> Any: ...


E = TypeVar("E", bound=LoopEpoch)


def train_to_best(
    module: Learnt,
    options: LoopOptions,
    run_epoch: Callable[[int, bool], E],
    metric: str,
    progress: Callable[[E], Any],
) -> tuple[list[E], E | None]:
    """Run all epochs; `module` ends with the weights of the best by `metric`. Without a validation part there is no best.

    run_epoch: runs the epoch of a number, from 0, and evaluates it on wish
    """
    history: list[E] = []
    best: E | None = None
    greatest, kept = 0.0, None
    for number in range(options.epochs):
        evaluated = number == options.epochs - 1 or (number + 1) % options.evaluate_every == 0
        found = run_epoch(number, evaluated)
        history.append(found)
        progress(found)
        if found.val is not None and (best is None or found.val[metric] > greatest):
            best, greatest, kept = found, found.val[metric], copy.deepcopy(module.state_dict())
        if options.patience is not None and best is not None and number + 1 - best.epoch >= options.patience:
            break
    if kept is not None:
        module.load_state_dict(kept)
    module.eval()
    return history, best


def mean_loss(losses: Sequence[float], epoch: int, lr: float) -> float:
    """The mean over an epoch's steps; a loss that is no number ends the training."""
    mean = sum(losses) / len(losses)
    if not np.isfinite(mean):
        raise Diverged(f"the loss is not a number in epoch {epoch}: choose a learning rate below {lr:g}")
    return mean


class LoopRun(Protocol):
    """A training that `train_to_best` ran."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def history(self) -> "Sequence[LoopEpoch]": ...
    @property
    def best(self) -> LoopEpoch: ...


def repr_of_best(run: LoopRun, dataset: str) -> str:
    """A training in one line: what it learnt from, and what its best epoch reached."""
    reached = "".join(f", val {name} {value:.4f}" for name, value in (run.best.val or {}).items())
    epochs = f"{len(run.history)} epochs, best {run.best.epoch}"
    return f"{type(run).__name__}({type(run.model).__name__} on {dataset}, {epochs}{reached})"

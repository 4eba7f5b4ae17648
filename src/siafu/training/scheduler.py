"""Schedulers of torch.optim.lr_scheduler: made by name, and stepped once an epoch as PyTorch's users do."""

import ast
import warnings
from typing import Any

import torch
from torch.optim import lr_scheduler

from siafu.base.choices import refuse_other_scheduler, unknown_scheduler
from siafu.base.errors import BadInput
from siafu.report.files.metrics import EpochMetrics


class Scheduler:
    """A scheduler with its optimizer, or none."""

    def __init__(self, scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
        self._scheduler, self._optimizer = scheduler, optimizer

    @property
    def needs_measures(self) -> bool:
        """Whether its steps depend on what epochs measured."""
        return isinstance(self._scheduler, lr_scheduler.ReduceLROnPlateau)

    def step(self, metrics: EpochMetrics | None) -> None:
        """End an epoch.

        metrics: what it measured: ReduceLROnPlateau steps by the validation loss with mode "min", by the validation
                 accuracy (or another metric) with mode "max"; without a validation split by the training loss. An epoch
                 that was not evaluated does not count
        """
        self._optimizer.step()
        if self._scheduler is None:
            return
        if not self.needs_measures:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # SequentialLR's, about its own steps
                self._scheduler.step()
            return
        assert metrics is not None
        found = metrics.val_accuracy if self._scheduler.mode == "max" else metrics.val_loss
        if found is None and metrics.evaluated and metrics.val_accuracy is None:
            found = metrics.train_accuracy if self._scheduler.mode == "max" else metrics.train_loss
        if found is not None:
            self._scheduler.step(found)


def make_scheduler(asked: Any, optimizer: torch.optim.Optimizer) -> Any:
    """The scheduler that was asked for: by a function, by a class's name and arguments, or None."""
    if asked is None:
        return None
    try:
        made = scheduler_named(asked)(optimizer) if isinstance(asked, str) else asked(optimizer)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the scheduler cannot be made: {' '.join(str(error).split())}") from error
    if not isinstance(made, lr_scheduler.LRScheduler):
        raise BadInput(
            f"scheduler makes a {type(made).__name__}: let it make a scheduler of torch.optim.lr_scheduler"
        )
    if made.optimizer is not optimizer:
        raise BadInput("scheduler makes one for another optimizer: make it for the one that it is given")
    return made


def scheduler_named(text: str) -> Any:
    """A function of an optimizer, of "StepLR(step_size=50, gamma=0.5)"."""
    refuse_other_scheduler(text)
    call = ast.parse(text.strip(), mode="eval").body
    name = call.func if isinstance(call, ast.Call) else call
    assert isinstance(name, ast.Name)
    kind = getattr(lr_scheduler, name.id, None)
    if not isinstance(kind, type) or not issubclass(kind, lr_scheduler.LRScheduler):
        raise unknown_scheduler(text, name.id, vars(lr_scheduler))
    try:
        given = [ast.literal_eval(each) for each in call.args] if isinstance(call, ast.Call) else []
        named = (
            {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
            if isinstance(call, ast.Call)
            else {}
        )
    except ValueError:
        raise BadInput(
            f"{unknown_scheduler(text)}; its arguments must be numbers, texts or lists of them"
        ) from None
    return lambda optimizer: kind(optimizer, *given, **named)

"""OwnObjective: a user's own loss and metric, as functions of rows."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.metric import Metric
from siafu.objective.objective import Objective, as_target

RowFunction = Callable[[Tensor, Tensor], Tensor]


class OwnObjective(Objective):
    """An objective of a user's functions: the mean of the loss is learnt, the mean of the metric judges.

    loss:    of the model's rows [n, outputs] and the same rows of the target [n, …]: one number a row [n], or their sum. It
             is traced as the model is
    metric:  likewise one number a row, for evaluation; it is run as it is. None: the loss, of which less is better
    target:  [V, …] values, of NumPy or PyTorch; None: the graph's labels
    outputs: numbers that the model gives for a vertex; None: as many as the graph has classes
    answers: from the model's rows to predictions; None: the rows themselves
    """

    counted = ("metric", "rows")

    def __init__(
        self,
        loss: RowFunction,
        metric: RowFunction | None = None,
        *,
        target: Any = None,
        outputs: int | None = None,
        answers: Callable[[Tensor], Tensor] | None = None,
        name: str = "own",
        metric_name: str | None = None,
        larger_is_better: bool | None = None,
        is_share: bool = False,
    ) -> None:
        for what, given in (("loss", loss), ("metric", metric), ("answers", answers)):
            if given is not None and not callable(given):
                raise BadInput(
                    f"{what} is a {type(given).__name__}: give a function of rows and their targets"
                )
        self.name = name
        larger = metric is not None if larger_is_better is None else larger_is_better
        self.metric = Metric(metric_name or ("loss" if metric is None else "metric"), larger, is_share)
        self._loss, self._metric, self._answers = loss, metric or loss, answers
        self._target = None if target is None else torch.as_tensor(target)
        self._outputs = outputs

    def on(self, graph: Graph) -> "OwnObjective":
        """Itself, after a look at whether the loss of twice the rows is twice the loss."""
        some = torch.arange(min(3, graph.num_vertices))
        y = as_target(self.target(graph)[some], torch.float64)
        out = torch.linspace(-1, 1, len(some) * self.outputs(graph), dtype=torch.float64).reshape(
            len(some), -1
        )
        once = self._loss(out, y)
        if once.ndim == 0:
            twice = self._loss(torch.cat([out, out]), torch.cat([y, y]))
            if not torch.allclose(twice, 2 * once, rtol=1e-6, equal_nan=True):
                raise BadInput(
                    "your loss of twice the rows is not twice the loss: let it give a number a row, or the sum of these (in "
                    "PyTorch's losses reduction='none' or 'sum')"
                )
        else:
            _of_rows("loss", once, out)
        return self

    def target(self, graph: Graph) -> Tensor:
        return super().target(graph) if self._target is None else self._target

    def outputs(self, graph: Graph) -> int:
        return graph.num_classes if self._outputs is None else self._outputs

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        found = self._loss(out, y)
        return found if found.ndim == 0 else found.sum()

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        found = self._metric(out, y)
        if self._metric is self._loss and found.ndim == 0:
            return found.item(), len(out)
        return _of_rows("metric", found, out).double().sum().item(), len(out)

    def measure(self, *counts: float) -> float:
        total, rows = counts
        return total / max(1, rows)

    def answers(self, out: Tensor) -> Tensor:
        return out if self._answers is None else self._answers(out)


def _of_rows(what: str, found: Any, out: Tensor) -> Tensor:
    if isinstance(found, Tensor) and found.ndim == 1 and len(found) == len(out):
        return found
    shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
    raise BadInput(
        f"your {what} gives {shape} for {len(out)} rows: let it give one number a row (in PyTorch's losses reduction='none')"
    )

"""Regression: quantities of each vertex."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.metric import Metric
from siafu.objective.objective import Objective

_LOSSES = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.smooth_l1_loss}


class Regression(Objective):
    """One or more quantities a vertex: squared, absolute or Huber error, judged by the root of the mean squared error.

    values: [V] or [V, K] the quantities, of NumPy or PyTorch; None: those of the graph's `y`, or the numbers of its classes
    error:  the loss: mse, mae or huber
    """

    name = "regression"
    metric = Metric("rmse", larger_is_better=False, is_share=False)
    counted = ("squares", "numbers")

    def __init__(self, values: Any = None, error: str = "mse") -> None:
        if error not in _LOSSES:
            raise BadInput(f"unknown error {error!r}: choose one of {', '.join(_LOSSES)}")
        self._values = None if values is None else torch.as_tensor(np.asarray(values))
        if self._values is not None and (self._values.ndim not in (1, 2) or self._values.is_complex()):
            raise BadInput(
                f"values has shape {list(self._values.shape)}: give one number or one row for each vertex"
            )
        self._error = error

    def target(self, graph: Graph) -> Tensor:
        if self._values is None and graph.class_names:
            few = ", ".join(graph.class_names[:3])
            raise BadInput(
                f"labels of graph {graph.name!r} are words ({few} …), and regression wants quantities: leave the objective out to learn "
                "classes, or give numbers"
            )
        values = super().target(graph) if self._values is None else self._values
        if len(values) != graph.num_vertices:
            raise BadInput(
                f"values has {len(values)} rows, and graph {graph.name!r} {graph.num_vertices} vertices: give one for each"
            )
        known = values.double()[known_rows(graph)]
        if not bool(torch.isfinite(known).all()):
            raise BadInput(
                "values has numbers that are not finite in the rows of a split: leave these rows out"
            )
        return values.reshape(len(values), -1).double()

    def outputs(self, graph: Graph) -> int:
        values = graph.y if self._values is None else self._values
        return 1 if values is None or values.ndim == 1 else int(values.shape[1])

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return _LOSSES[self._error](out, y, reduction="sum")

    def terms(self, y: Tensor) -> float:
        return y.numel()

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        return (out - y).square().sum().item(), y.numel()

    def measure(self, *counts: float) -> float:
        squares, numbers = counts
        return float((squares / max(1, numbers)) ** 0.5)

    def answers(self, out: Tensor) -> Tensor:
        return out.squeeze(1) if out.shape[1] == 1 else out

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"error": self._error}


def known_rows(graph: Graph) -> Tensor:
    """Vertices of all splits, whose targets are read."""
    parts = [each for each in (graph.train, graph.val, graph.test) if each is not None]
    return torch.from_numpy(np.concatenate(parts)) if parts else torch.arange(graph.num_vertices)

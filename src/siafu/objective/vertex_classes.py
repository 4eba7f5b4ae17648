"""VertexClasses: each vertex is of one class."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.metric import ACCURACY
from siafu.objective.objective import Objective


class VertexClasses(Objective):
    """One class a vertex: cross-entropy, and the share of vertices whose likeliest class is theirs.

    weights:   of the classes' losses, one a class, as torch.nn.CrossEntropyLoss takes them; "balanced": the rarer a class is
               among the training rows, the more, so that all classes count alike; None: all count 1
    smoothing: label smoothing, from 0 up to, not at, 1
    """

    name = "classes"
    metric = ACCURACY
    counted = ("hits", "tries")
    # For subclasses that have an __init__ of their own.
    _asked: str | tuple[float, ...] | None = None
    _weights: Tensor | None = None
    _smoothing = 0.0

    def __init__(self, weights: Any = None, smoothing: float = 0.0) -> None:
        if not 0 <= smoothing < 1:
            raise BadInput(f"label_smoothing is {smoothing}: give a share from 0 up to, not at, 1")
        if isinstance(weights, str) and weights != "balanced":
            weights = _numbers(weights)
        self._asked = weights if weights is None or isinstance(weights, str) else tuple(map(float, weights))
        if isinstance(self._asked, tuple) and not all(0 <= each < math.inf for each in self._asked):
            raise BadInput(f"class_weights is {list(self._asked)}: give numbers from 0 up")
        self._smoothing = smoothing
        self._weights = (
            torch.tensor(self._asked, dtype=torch.float64) if isinstance(self._asked, tuple) else None
        )

    def on(self, graph: Graph) -> "VertexClasses":
        """The same objective, with the weights that this graph's training rows ask for."""
        if self._asked is None:
            return self
        y, classes = Objective.target(self, graph), graph.num_classes
        if isinstance(self._asked, tuple):
            if len(self._asked) != classes:
                raise BadInput(
                    f"class_weights has {len(self._asked)} numbers, and graph {graph.name!r} {classes} classes: give one for each"
                )
            return self
        rows = y if graph.train is None else y[torch.from_numpy(graph.train)]
        counts = torch.bincount(rows, minlength=classes).double()
        made = VertexClasses(None, self._smoothing)
        made._asked = self._asked
        # A class that no training row has counts as one that has one.
        made._weights = len(rows) / (classes * counts.clamp(min=1))
        return made

    def target(self, graph: Graph) -> Tensor:
        if graph.multi_label:
            raise BadInput(
                f"graph {graph.name!r} has any number of {graph.num_classes} labels a vertex, and objective classes wants one "
                "class: choose labels, or leave the objective out"
            )
        if graph.has_quantities:
            raise BadInput(
                f"graph {graph.name!r} has quantities for labels, and objective classes wants whole numbers: choose regression, "
                "or leave the objective out"
            )
        y = super().target(graph)
        return self._shares(y, graph.num_classes) if self._is_weighted else y

    @property
    def _is_weighted(self) -> bool:
        return self._weights is not None or self._smoothing > 0

    def _shares(self, y: Tensor, classes: int) -> Tensor:
        """[V, C + 1]: share of each class in a vertex's loss, and last the number of its class."""
        weights = torch.ones(classes, dtype=torch.float64) if self._weights is None else self._weights
        smooth = (self._smoothing / classes) * weights
        rows = smooth.repeat(len(y), 1)
        rows[torch.arange(len(y)), y] += (1 - self._smoothing) * weights[y]
        return torch.cat([rows, y[:, None].double()], 1)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        if not self._is_weighted:
            return F.cross_entropy(out, y, reduction="sum")
        return -(F.log_softmax(out, 1) * y[:, :-1]).sum()

    def terms(self, y: Tensor) -> float:
        return len(y) if self._weights is None else self._weights[y[:, -1].long()].sum().item()

    def as_json(self) -> dict[str, Any]:
        asked = {"class_weights": self._asked, "label_smoothing": self._smoothing or None}
        return super().as_json() | {name: each for name, each in asked.items() if each is not None}

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        classes = y[:, -1].long() if self._is_weighted else y
        return int((out.argmax(dim=1) == classes).sum()), len(out)

    def measure(self, *counts: float) -> float:
        hits, tries = counts
        return hits / max(1, tries)

    def answers(self, out: Tensor) -> Tensor:
        return out.argmax(dim=1)

    def probabilities(self, out: Tensor) -> Tensor:
        return torch.softmax(out, dim=1)


def _numbers(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",")]
    except ValueError:
        raise BadInput(
            f"class_weights is {text!r}: give balanced, or a number for each class, with commas between them"
        ) from None

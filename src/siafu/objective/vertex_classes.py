"""VertexClasses: each vertex is of one class."""

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.metric import ACCURACY
from siafu.objective.objective import Objective


class VertexClasses(Objective):
    """One class a vertex: cross-entropy, and the share of vertices whose likeliest class is theirs."""

    name = "classes"
    metric = ACCURACY
    counted = ("hits", "tries")

    def target(self, graph: Graph) -> Tensor:
        if graph.multi_label:
            raise BadInput(
                f"graph {graph.name!r} has any number of {graph.num_classes} labels a vertex, and objective classes wants one "
                "class: choose labels, or leave the objective out"
            )
        return super().target(graph)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y, reduction="sum")

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        return int((out.argmax(dim=1) == y).sum()), len(out)

    def measure(self, *counts: float) -> float:
        hits, tries = counts
        return hits / max(1, tries)

    def answers(self, out: Tensor) -> Tensor:
        return out.argmax(dim=1)

    def probabilities(self, out: Tensor) -> Tensor:
        return torch.softmax(out, dim=1)

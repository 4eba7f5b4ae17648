"""VertexLabels: each vertex has any number of labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.metric import Metric
from siafu.objective.objective import Objective


class VertexLabels(Objective):
    """Any number of labels a vertex: binary cross-entropy over all of them, and micro-F1.

    Micro-F1 is twice the right labels, of those said and those true together.
    """

    name = "labels"
    metric = Metric("micro_f1")
    counted = ("hits", "tries")

    def target(self, graph: Graph) -> Tensor:
        if graph.y is not None and not graph.multi_label:
            there, instead = f"one of {graph.num_classes} classes a vertex", "classes"
            if graph.has_quantities:
                there, instead = "quantities for labels", "regression"
            raise BadInput(
                f"graph {graph.name!r} has {there}, and objective labels wants a column of "
                f"zeros and ones for each label: choose {instead}, or leave the objective out"
            )
        return super().target(graph)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out, y.to(out.dtype), reduction="sum")

    def terms(self, y: Tensor) -> float:
        return y.numel()

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        said, true = self.answers(out), y.bool()
        return 2 * int((said & true).sum()), int(said.sum()) + int(true.sum())

    def measure(self, *counts: float) -> float:
        hits, tries = counts
        return hits / max(1, tries)

    def answers(self, out: Tensor) -> Tensor:
        return out > 0  # a probability above 1/2

    def probabilities(self, out: Tensor) -> Tensor:
        return torch.sigmoid(out)

"""Scores of a model's output: the loss to train on, and the share of right answers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph


@dataclass(frozen=True, slots=True)
class Target:
    """Labels of a graph's vertices, as tensors.

    y:           [V] int64 classes, or [V, C] uint8 where a vertex has any number of labels
    num_classes: C
    """

    y: Tensor
    num_classes: int

    @classmethod
    def of(cls, graph: Graph) -> "Target":
        if graph.y is None:
            raise BadInput(
                f"graph {graph.name!r} has no labels: give it y, or import it with labels (--vertices or --labels)"
            )
        return cls(torch.from_numpy(graph.y), graph.num_classes)

    @property
    def multi_label(self) -> bool:
        return self.y.ndim == 2

    @property
    def metric(self) -> str:
        """The name of the measure that `accuracy` gives."""
        return "micro_f1" if self.multi_label else "accuracy"

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Cross-entropy, or binary cross-entropy over all labels; the mean over `rows`, which alone are read."""
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits[rows], self.y[rows].to(logits.dtype))
        return F.cross_entropy(logits[rows], self.y[rows])

    def accuracy(self, logits: Tensor, rows: Tensor) -> float:
        """The share of `rows` that is right; micro-F1 over all their labels where there are several."""
        if self.multi_label:
            return micro_f1(classes(logits[rows], multi_label=True), self.y[rows])
        right = (logits[rows].argmax(dim=1) == self.y[rows]).sum().item()
        return right / max(1, len(rows))

    def scores(self, logits: Tensor, rows: dict[str, Tensor]) -> dict[str, dict[str, float]]:
        """For each split: how many `rows` it has, the `loss` and the `accuracy` on them."""
        return {
            split: {
                "rows": len(ids),
                "loss": self.loss(logits, ids).item(),
                "accuracy": self.accuracy(logits, ids),
            }
            for split, ids in rows.items()
        }


def classes(logits: Tensor, *, multi_label: bool) -> Tensor:
    """Predictions out of logits: [V] the likeliest class, or [V, C] whether each label holds (probability > 1/2)."""
    return logits > 0 if multi_label else logits.argmax(dim=1)


def probabilities(logits: Tensor, *, multi_label: bool) -> Tensor:
    """[V, C]: over the classes of a vertex, or of each label by itself."""
    return torch.sigmoid(logits) if multi_label else torch.softmax(logits, dim=1)


def micro_f1(predicted: Tensor, actual: Tensor) -> float:
    """F1 of all labels of all vertices taken together; 0 where none is predicted and none is there."""
    said, true = predicted.bool(), actual.bool()
    hits = int((said & true).sum())
    return 2 * hits / max(1, int(said.sum()) + int(true.sum()))

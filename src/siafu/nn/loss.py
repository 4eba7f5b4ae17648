"""The losses that vertices are trained on, as sums over rows: parts of a graph add up to the whole."""

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph


def target_of(graph: Graph) -> Tensor:
    """What a graph's vertices should be: [V] int64 classes, or [V, C] uint8 where each has any number of labels."""
    if graph.y is None:
        raise BadInput(
            f"graph {graph.name!r} has no labels: give it y, or import it with labels (--vertices or --labels)"
        )
    return torch.from_numpy(graph.y)


def loss_sum(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy summed over rows; over rows and labels the binary one, where a vertex has several.

    y: [rows] int64 classes, or [rows, C] whether each label holds
    """
    if y.ndim == 1:
        return F.cross_entropy(logits, y, reduction="sum")
    return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="sum")


def loss_terms(y: Tensor, rows: int) -> int:
    """How many terms `loss_sum` adds up over that many rows: what makes it a mean."""
    return rows if y.ndim == 1 else rows * int(y.shape[1])

"""Rules for weights with a row for each vertex: only rows that have a gradient are moved, bit for bit as torch.optim moves them.

A row has a gradient if one of its numbers is not zero. Averages of the other rows stay as they are, too.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from siafu.weights.optimizer import Settings, Slots

_ADAGRAD_EPS = 1e-10  # PyTorch's


def rows_with_gradient(gradient: Tensor) -> Tensor:
    """Numbers of the rows that have a gradient, ascending."""
    return gradient.ne(0).flatten(1).any(1).nonzero().squeeze(1)


def sparse_adam(
    weight: Tensor, gradient: Tensor, slots: "Slots", _: float, how: "Settings"
) -> tuple[Tensor, "Slots"]:
    """`torch.optim.SparseAdam`, which knows no weight decay. Each operation rounds: their order is torch's."""
    slots = slots or _begun(weight, "exp_avg", "exp_avg_sq")
    count, (beta1, beta2) = slots["step"] + 1, how.betas
    rows = rows_with_gradient(gradient)
    found = gradient.index_select(0, rows)
    mean, square = (slots[name].index_select(0, rows) for name in ("exp_avg", "exp_avg_sq"))

    of_mean = found.sub(mean).mul_(1 - beta1)
    of_square = found.pow(2).sub_(square).mul_(1 - beta2)
    mean, square = of_mean.add_(mean), of_square.add_(square)
    steps = count.item()
    step_size = how.lr * math.sqrt(1 - beta2**steps) / (1 - beta1**steps)
    moved = -step_size * mean.div(square.sqrt().add_(how.eps))
    remembered = {
        "step": count,
        "exp_avg": slots["exp_avg"].index_copy(0, rows, mean),
        "exp_avg_sq": slots["exp_avg_sq"].index_copy(0, rows, square),
    }
    return weight.index_copy(0, rows, weight.index_select(0, rows).add_(moved)), remembered


def adagrad(
    weight: Tensor, gradient: Tensor, slots: "Slots", _: float, how: "Settings"
) -> tuple[Tensor, "Slots"]:
    """`torch.optim.Adagrad` with sparse gradients, which refuse weight decay."""
    slots = slots or _begun(weight, "sum")
    rows = rows_with_gradient(gradient)
    found = gradient.index_select(0, rows)
    total = slots["sum"].index_select(0, rows).add_(found.pow(2))
    moved = weight.index_select(0, rows).add_(found / total.sqrt().add_(_ADAGRAD_EPS), alpha=-how.lr)
    remembered = {"step": slots["step"] + 1, "sum": slots["sum"].index_copy(0, rows, total)}
    return weight.index_copy(0, rows, moved), remembered


def _begun(weight: Tensor, *names: str) -> "Slots":
    return {
        "step": torch.tensor(0.0, dtype=torch.float32),
        **{name: torch.zeros_like(weight) for name in names},
    }

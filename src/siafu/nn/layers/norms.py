"""Norms between layers, by name."""

from collections.abc import Callable

import torch
from torch import nn

from siafu.base.choices import refuse_other_norm


class BatchNorm(nn.Module):
    r"""Ioffe and Szegedy, "Batch Normalization", ICML 2015, over all vertices of the graph.

        x'_i = γ (x_i - E[x]) / sqrt(Var[x] + ε) + β

    In training E and Var are those of all vertices' rows, in evaluation the running ones, kept as torch keeps them.

    Shapes: [V, channels] → [V, channels]. Parameters and buffers are named as in PyG's BatchNorm.
    """

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.module = nn.BatchNorm1d(channels, eps, momentum)

    def reset_parameters(self) -> None:
        self.module.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.module(x)
        return out


_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer_norm": nn.LayerNorm,
    "batch_norm": BatchNorm,
    "batch": BatchNorm,
    "BatchNorm": BatchNorm,
}


def norm_layer(name: str, channels: int) -> nn.Module:
    """A norm by its name."""
    refuse_other_norm(name)
    return _NORMS[name](channels)


def is_batch_norm(name: str | None) -> bool:
    return name is not None and _NORMS.get(name) is BatchNorm

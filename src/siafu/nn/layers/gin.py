"""Graph isomorphism network."""

import itertools
from typing import Any

import torch
from torch import nn

from siafu.nn.gathers.gather import Sum
from siafu.nn.layers.layer import Layer
from siafu.nn.layers.norms import is_batch_norm, norm_layer
from siafu.nn.model import GNN, activation, reset_parameters
from siafu.nn.tensors import Precision


class MLP(nn.Module):
    """Linear maps with an activation between them, and perhaps a batch norm before it; parameters are named as in PyG's MLP."""

    def __init__(self, channels: list[int], act: str = "relu", norm: str | None = None) -> None:
        super().__init__()
        self.lins = nn.ModuleList(
            nn.Linear(wide, next_wide) for wide, next_wide in itertools.pairwise(channels)
        )
        self.act = activation(act)
        between = channels[1:-1] if is_batch_norm(norm) else []
        self.norms = nn.ModuleList(norm_layer(norm or "", wide) for wide in between)

    def reset_parameters(self) -> None:
        for each in [*self.lins, *self.norms]:
            reset_parameters(each)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, linear in enumerate(self.lins):
            x = linear(x if number == 0 else self.act(x))
            if number < len(self.norms):
                x = self.norms[number](x)
        return x


class GINConv(Layer):
    r"""Xu, Hu, Leskovec and Jegelka, "How Powerful are Graph Neural Networks?", ICLR 2019.

        x'_i = nn((1 + eps) · x_i + Σ_j x_j)        j over i's in-edges; edge weights do not count

    nn:        any module that maps each row alone
    eps:       the weight of the vertex itself, less 1
    train_eps: whether eps is learnt

    Shapes: as `nn`. Parameters are named as in PyG's GINConv.
    """

    def __init__(
        self, nn: nn.Module, eps: float = 0.0, train_eps: bool = False, *, precision: Precision = "fp32"
    ) -> None:
        super().__init__()
        self.nn = nn
        self.gather = Sum(precision, weighted=False)
        self.initial_eps = eps
        value = torch.tensor([float(eps)])
        if train_eps:
            self.eps = torch.nn.Parameter(value)
        else:
            self.register_buffer("eps", value)

    def reset_parameters(self) -> None:
        self.eps.data.fill_(self.initial_eps)
        reset_parameters(self.nn)

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.nn(gathered + (1 + self.eps) * x)
        return out


class GIN(GNN):
    """Layers of `GINConv` with an MLP of two maps each, as PyG's `GIN`."""

    def make_layer(self, in_channels: int, out_channels: int, is_last: bool, **options: Any) -> Layer:
        mlp = MLP([in_channels, out_channels, out_channels], act=self.act_name, norm=self.norm_name)
        return GINConv(mlp, precision=self.precision, **options)

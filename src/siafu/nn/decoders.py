"""Decoders: the score of a link, of the rows of both ends."""

import itertools

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput


class DotDecoder(nn.Module):
    """z_u · z_v."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[n, width] rows of both ends → [n] scores."""
        return (source * target).sum(1)


class DistMultDecoder(nn.Module):
    """Σ_c z_uc r_c z_vc, with r learnt (Yang et al. 2015), for the one relation that links are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones(width))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[n, width] rows of both ends → [n] scores."""
        return (source * self.relation * target).sum(1)


class MlpDecoder(nn.Module):
    """A perceptron on z_u ∘ z_v, which does not depend on the direction.

    layers: linear maps, with ReLU between them
    """

    def __init__(self, width: int, layers: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 1:
            raise BadInput(f"layers is {layers}: a perceptron has at least one")
        widths = [width] * layers + [1]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.dropout = dropout

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[n, width] rows of both ends → [n] scores."""
        rows = source * target
        for number, linear in enumerate(self.linears):
            rows = linear(rows)
            if number < len(self.linears) - 1:
                rows = nn.functional.dropout(torch.relu(rows), self.dropout, self.training)
        return rows.squeeze(1)


DECODERS: dict[str, type[nn.Module]] = {"dot": DotDecoder, "mlp": MlpDecoder, "distmult": DistMultDecoder}
"""Decoders by the names that `siafu.train_links(decoder=NAME)` takes."""

"""Clipping: gradients scaled so that the norm of all of them together keeps a bound, as torch.nn.utils.clip_grad_norm_ does."""

from collections.abc import Mapping

import torch
from torch import Tensor

Norms = tuple[tuple[int, float], ...]
"""(place of a parameter in the model, norm of its gradient), of some parameters."""

_AGAINST_ZERO = 1e-6  # PyTorch's


def norms_of(gradients: Mapping[str, Tensor], places: Mapping[str, int]) -> Norms:
    """Norms of gradients, in the order of the model's parameters."""
    return tuple(
        sorted((places[name], torch.linalg.vector_norm(each).item()) for name, each in gradients.items())
    )


def clipped(gradients: Mapping[str, Tensor], norms: Norms, most: float) -> dict[str, Tensor]:
    """Gradients scaled by one factor, so that the norm of all is at most `most`.

    norms: of all parameters' gradients, also of those that are at home elsewhere, in the order of the model's parameters
    """
    if not gradients:
        return {}
    dtype = next(iter(gradients.values())).dtype
    # The order of operations is PyTorch's, since each one rounds.
    total = torch.linalg.vector_norm(torch.tensor([norm for _, norm in norms], dtype=dtype))
    factor = torch.clamp(most / (total + _AGAINST_ZERO), max=1.0)
    return {name: each.mul(factor) for name, each in gradients.items()}

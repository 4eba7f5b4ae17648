"""The dimension of a recorded value that counts vertices."""

from typing import Any

import torch


def row_axis(value: Any) -> int | None:
    """Which dimension of a recorded value counts rows; None: none does."""
    if not isinstance(value, torch.Tensor):
        return None
    axes = [dim for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt)]
    return axes[0] if axes else None

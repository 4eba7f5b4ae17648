"""Tensors of a checkpoint, as a training takes them up again: by part, and refused where they are another model's."""

from collections.abc import Mapping

import torch
from torch import Tensor


def saved_rates(found: Mapping[str, Tensor], groups: int) -> tuple[float, ...] | None:
    """The rates that a checkpoint holds; None: it was made before there were any."""
    if not found:
        return None
    rates = found.get("rates")
    if rates is None or rates.shape != (4 * groups,) or rates.dtype != torch.float64:
        raise ValueError(f"it has no rates of {groups} groups of parameters")
    return tuple(rates.tolist())


def refuse_others(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of this model: their names, shapes and types."""
    if unknown := sorted(found.keys() - wanted.keys()):
        raise ValueError(f"it has {unknown[0]}, which the model has not")
    for name, tensor in wanted.items():
        if name not in found or found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            raise ValueError(f"it has no {name} of shape {list(tensor.shape)} and {tensor.dtype}")


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

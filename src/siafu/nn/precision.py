"""Precision of a model that is already built, whoever wrote it."""

from dataclasses import replace

from torch import nn

from siafu.base.errors import BadInput
from siafu.nn.gathers.gather import Gather
from siafu.nn.model import GNN
from siafu.nn.tensors import PRECISIONS, Precision

_ASKED = "siafu_precision"


def set_precision(model: nn.Module, precision: Precision) -> None:
    """Have all gathers of `model` store rows in this precision, and its products be computed in it: see `Precision`.

    Of a PyG model only training and predictions are meant, not its own `forward`.
    """
    if precision not in PRECISIONS:
        raise BadInput(f"precision is {precision!r}: choose {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}")
    setattr(model, _ASKED, precision)
    for module in model.modules():
        if isinstance(module, GNN):
            module.precision = precision
            module._config["precision"] = precision
        if isinstance(gather := getattr(module, "gather", None), Gather):
            setattr(module, "gather", replace(gather, precision=precision))  # noqa: B010 - a module's, not of any module


def asked_precision(model: nn.Module) -> Precision | None:
    """The precision that `set_precision` gave the model; None: each layer has its own."""
    found: Precision | None = getattr(model, _ASKED, None)
    return found

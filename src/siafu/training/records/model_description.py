"""A model as config.json describes it, and the model of such a description."""

from pathlib import Path
from typing import Any

from torch import nn

from siafu.base.errors import BadInput
from siafu.nn import MODELS, build
from siafu.nn.precision import asked_precision


def describe_model(model: nn.Module) -> dict[str, Any]:
    """The model's name, and the options that it was built with; None: it is of a user's making."""
    found: dict[str, Any] = {"name": f"{type(model).__module__}.{type(model).__qualname__}", "config": None}
    for name, kind in MODELS.items():
        if type(model) is kind:
            found = {"name": name, "config": model.config()}
    asked = asked_precision(model)
    return found if asked is None else found | {"precision": asked}


def build_described(description: dict[str, Any], where: Path, load: str) -> nn.Module:
    """The model of a description, with new weights.

    where: the run's directory; load: how to load a run of a model of one's own
    """
    name = description["name"]
    if name not in MODELS:
        raise BadInput(f"{where} was trained with {name}, which only you can build: use {load} from Python")
    try:
        return build(name, description["config"])
    except (BadInput, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"{where / 'config.json'} describes a {name} that cannot be built ({reason}): copy the run again"
        ) from error

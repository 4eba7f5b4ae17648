"""Fingerprint: the name under which a compiled model is kept: a hash of everything that decides what it is compiled to.

Only models made of Siafu's and PyTorch's own modules have one. What the code of others does may depend on anything, and they
are compiled each time.
"""

import hashlib
import itertools
import json
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from siafu.base.version import __version__
from siafu.graph import Graph
from siafu.nn.gathers.gather import Gather
from siafu.objective.objective import Objective, target_of

_PACKAGE = Path(__file__).resolve().parents[2]
_DECIDING = ("nn", "objective", "program")
"""Rooms whose code decides what a model is compiled to."""
_OWN_MODULES = ("siafu.nn.", "torch.nn.modules.")
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_LISTED_APART = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})


class _Unknown(Exception):
    """Something that may decide what a model computes, and that has no name."""


def fingerprint(
    model: nn.Module,
    graph: Graph,
    objective: Objective,
    *,
    training: bool,
    loss_scale: float,
    saved: float = 0.0,
    once: bool = False,
) -> str | None:
    """A hash of what `compile_model` is given; None: it cannot be told from another that is compiled otherwise.

    saved: products that the graph's zeros may save, see `saved_by_sparse_products`
    once:  as `compile_model` takes it
    """
    try:
        told = [_code_told(), _model_told(model), _objective_told(objective, graph)]
    except _Unknown:
        return None
    sizes = [graph.num_vertices, graph.num_features, graph.num_classes]
    seen = [*sizes, graph.multi_label, training, repr(loss_scale), repr(saved)]
    seen += [once]
    text = json.dumps([*told, seen], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code_told() -> list[str]:
    digest = hashlib.sha256()
    for room in _DECIDING:
        for path in sorted((_PACKAGE / room).rglob("*.py")):
            digest.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
    return [__version__, digest.hexdigest(), torch.__version__, str(torch.get_default_dtype())]


def _objective_told(objective: Objective, graph: Graph) -> list[Any]:
    _check_own(type(objective), ("siafu.objective.",))
    y = target_of(objective, graph)
    state = {name: _told(value) for name, value in vars(objective).items()}
    return [_name(type(objective)), state, str(y.dtype), list(y.shape[1:]), objective.outputs(graph)]


def _model_told(model: nn.Module) -> list[Any]:
    if nn.modules.module._has_any_global_hook():
        raise _Unknown
    # A tensor that has several names is one weight, and goes by the first.
    tensors: dict[int, int] = {}
    weights = [
        [name, tensors.setdefault(id(each), len(tensors)), *_tensor_told(each)]
        for name, each in itertools.chain(
            model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
        )
    ]
    modules: dict[int, int] = {}
    parts = [
        [name, modules.setdefault(id(each), len(modules)), _module_told(each)]
        for name, each in model.named_modules(remove_duplicate=False)
    ]
    return [weights, parts]


def _tensor_told(tensor: Tensor) -> list[Any]:
    if type(tensor) not in (Tensor, nn.Parameter):
        raise _Unknown
    return [list(tensor.shape), str(tensor.dtype), str(tensor.device), tensor.requires_grad]


def _module_told(module: nn.Module) -> list[Any]:
    _check_own(type(module), _OWN_MODULES)
    state = vars(module)
    hooks = _OF_EVERY_MODULE - _LISTED_APART
    if any(state[name] for name in hooks & state.keys()):
        raise _Unknown
    own = {name: _told(value) for name, value in state.items() if name not in _OF_EVERY_MODULE}
    missing = [name for name, each in [*module._parameters.items(), *module._buffers.items()] if each is None]
    return [_name(type(module)), own, missing, list(module._modules)]


def _check_own(kind: type, homes: tuple[str, ...]) -> None:
    """Refuse classes of others, and those that were made or changed while a program ran."""
    home = sys.modules.get(kind.__module__)
    if not kind.__module__.startswith(homes) or getattr(home, kind.__qualname__, None) is not kind:
        raise _Unknown


def _told(value: Any) -> Any:
    """A value of a module as JSON has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, torch.dtype)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_told, value)]
    if isinstance(value, dict):
        return {str(key): _told(each) for key, each in value.items()}
    if isinstance(value, Gather) and is_dataclass(value):
        _check_own(type(value), _OWN_MODULES)
        return [_name(type(value)), {each.name: _told(getattr(value, each.name)) for each in fields(value)}]
    for home in (torch, nn.functional):
        name = getattr(value, "__name__", "")
        if getattr(home, name, None) is value:
            return f"{home.__name__}.{name}"
    raise _Unknown


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"

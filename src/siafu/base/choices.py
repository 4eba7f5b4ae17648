"""Choices: names that options may have, and refusals of others, before PyTorch and Numba are loaded.

What has each of these names is elsewhere, in tables that need PyTorch: tests compare both.
"""

import ast
import re
from collections.abc import Collection, Iterable
from importlib.util import find_spec
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.nearest import choose, nearest

MODEL_NAMES = ("gcn", "gat", "gatv2", "transformer", "sage", "gin")
PRECISION_NAMES = ("fp32", "bf16", "mixed")
ACTIVATION_NAMES = ("relu", "elu", "gelu", "leaky_relu", "silu", "tanh")
NORM_NAMES = ("layer_norm", "batch_norm", "batch", "BatchNorm")
OBJECTIVE_NAMES = ("classes", "labels", "regression")
PARTITION_METHODS = ("auto", "metis", "stream", "contiguous", "hash")

_SCHEDULER = "give a class of torch.optim.lr_scheduler with its arguments, such as StepLR(step_size=50)"


def refuse_other_model(name: str, known: Collection[str] = MODEL_NAMES) -> None:
    """Refuse a name that no model has, and name the nearest; known: with those that a user has added, once they are loaded."""
    if name not in known:
        raise BadInput(f"unknown model {name!r}: {choose(name, known)}")


def refuse_other_precision(name: str) -> None:
    """Refuse a precision that no model has; auto is one that a training finds."""
    if name not in (*PRECISION_NAMES, "auto"):
        raise BadInput(f"precision is {name!r}: choose {', '.join(PRECISION_NAMES)} or auto")


def refuse_other_activation(name: str) -> None:
    """Refuse a name that no activation has."""
    if name not in ACTIVATION_NAMES:
        raise BadInput(f"act is {name!r}: {choose(name, ACTIVATION_NAMES)}")


def refuse_other_norm(name: str | None) -> None:
    """Refuse a name that no norm has; None: no norm."""
    if name not in (None, *NORM_NAMES):
        raise BadInput(
            f"norm is {name!r}: choose layer_norm or batch_norm, or write a model with PyG's norms"
        )


def refuse_other_shares(dropout: float, input_dropout: float) -> None:
    """Refuse shares to drop that are no shares."""
    if not (0 <= dropout < 1 and 0 <= input_dropout < 1):
        raise BadInput(
            f"dropout is {dropout}, input_dropout {input_dropout}: a share lies from 0 up to, not at, 1"
        )


def refuse_other_objective(name: str, known: Collection[str] = OBJECTIVE_NAMES) -> None:
    """Refuse a name that no objective has; known: with those that a user has added, once they are loaded."""
    if name not in known:
        raise BadInput(f"unknown objective {name!r}: {choose(name, known)}")


def refuse_other_method(method: str) -> None:
    """Refuse a name that no method to partition has."""
    if method not in PARTITION_METHODS:
        raise BadInput(f"no partition method {method!r}: {choose(method, PARTITION_METHODS)}")


def refuse_other_scheduler(text: str) -> None:
    """Refuse what names no class of torch.optim.lr_scheduler; its arguments are left to the training."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise unknown_scheduler(text) from None
    name = call.func if isinstance(call, ast.Call) else call
    if not isinstance(name, ast.Name):
        raise unknown_scheduler(text)
    known = scheduler_names()
    if known and name.id not in known:
        raise unknown_scheduler(text, name.id, known)


def unknown_scheduler(text: str, name: str = "", known: Iterable[str] = ()) -> BadInput:
    """No scheduler is called so; known: names among which the nearest is looked for."""
    near = nearest(name, known)
    return BadInput(f"scheduler is {text!r}: {_SCHEDULER}{f'; did you mean {near}?' if near else ''}")


def scheduler_names() -> list[str]:
    """Classes of torch.optim.lr_scheduler, out of its source; none if that cannot be read."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return []
    try:
        source = (Path(torch.origin).parent / "optim" / "lr_scheduler.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return re.findall(r"^class ([A-Z]\w*)", source, re.MULTILINE)

"""Cache of compiled models: files beside the compiled kernels, each named by its model's fingerprint.

A file that is damaged, or that another Siafu wrote, counts as absent.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from siafu.base.compiling import compiling
from siafu.base.errors import SiafuError
from siafu.base.storage.files import cache_directory, replace_text
from siafu.graph import Graph
from siafu.objective.objective import Objective
from siafu.objective.registry import objective_for
from siafu.program.cache.constants_form import NoForm
from siafu.program.cache.fingerprint import fingerprint
from siafu.program.cache.program_form import program_form, read_program
from siafu.program.density import saved_by_sparse_products
from siafu.program.program import Program

_MOST_FILES = 1000
_UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, SiafuError)


def compiled(
    model: nn.Module,
    graph: Graph,
    objective: Objective | None = None,
    *,
    training: bool,
    loss_scale: float = 1.0,
    sparse: bool = True,
    once: bool = False,
) -> Program:
    """`compile_model`'s program, read from the cache where a model of the same fingerprint was compiled before."""
    objective = objective or objective_for(graph)
    saved = saved_by_sparse_products(graph) if sparse else 0.0
    name = fingerprint(
        model, graph, objective, training=training, loss_scale=loss_scale, saved=saved, once=once
    )
    path = None if name is None else cache_directory() / "programs" / f"{name}.json"
    found = None if path is None else _read(path, model)
    if found is not None:
        return found
    # It brings PyTorch's tracing along, which takes longer to import than a small training takes.
    with compiling("the model"):
        from siafu.program.compile import compile_model

        made = compile_model(
            model, graph, objective, training=training, loss_scale=loss_scale, sparse=sparse, once=once
        )
    if path is not None:
        _write(path, made, model)
    return made


def _read(path: Path, model: nn.Module) -> Program | None:
    with suppress(*_UNREADABLE):
        whole = json.loads(path.read_bytes())
        if whole["sha256"] == _digest(whole["program"]):
            return read_program(whole["program"], model)
    return None


def _write(path: Path, program: Program, model: nn.Module) -> None:
    """Keep a program. Where it cannot be written, it is compiled again next time."""
    with suppress(NoForm, OSError, SiafuError):
        # What is read is compared with the digest of what JSON makes of it.
        form = json.loads(json.dumps(program_form(program, model)))
        _make_room(path.parent)
        replace_text(path, json.dumps({"sha256": _digest(form), "program": form}))


def _digest(form: Any) -> str:
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()


def _make_room(directory: Path) -> None:
    """Remove the oldest half of the files once there are too many."""
    files = list(directory.glob("*.json")) if directory.is_dir() else []
    if len(files) < _MOST_FILES:
        return
    for each in sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) // 2]:
        each.unlink(missing_ok=True)

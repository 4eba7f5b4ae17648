"""Refusals of places where nothing is.

They stand apart from what reads these places, so that a command can refuse a mistyped path before it imports PyTorch and Numba.
"""

import difflib
from pathlib import Path

from siafu.base.errors import BadInput, StoreError

STORE_MANIFEST, RUN_CONFIG = "graph.json", "config.json"


def is_file(path: Path) -> bool:
    """Whether there is a file; not where the system cannot say."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or a place we may not look into
        return False


def near_file(path: Path) -> str:
    """A question about the file beside an absent one whose name is most like it; empty: none is."""
    try:
        there = [each.name for each in path.parent.iterdir() if each.name != path.name]
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(path.name, there, n=1, cutoff=0.75)
    return f"did you mean {path.parent / near[0]}?" if near else ""


def not_imported(path: Path) -> StoreError:
    """`path` is a file, and a store is a directory."""
    return StoreError(f"{path} is a file, not a store: turn it into one with 'siafu import {path}'")


def no_store(path: Path) -> StoreError:
    """There is no store at `path`."""
    if is_file(path):
        return not_imported(path)
    return StoreError(
        f"no store at {path} ({STORE_MANIFEST} is not there): give the directory that 'siafu import' or 'siafu generate' "
        "wrote, copied whole"
    )


def no_run(path: Path) -> BadInput:
    """There is no run at `path`."""
    hint = near_file(path) or "give the directory that 'siafu train' named"
    return BadInput(f"no run at {path}: {hint}")


def run_for_graph(path: Path) -> BadInput:
    """A run's directory stands where a graph is wanted."""
    return BadInput(
        f"{path} is a run's directory, not a graph: name the dataset or store that it was trained on (siafu evaluate {path} "
        "takes a run)"
    )


def is_run(path: Path) -> bool:
    """Whether a directory holds a run, and no store."""
    return all(is_file(path / name) for name in (RUN_CONFIG, "metrics.jsonl")) and not is_file(
        path / STORE_MANIFEST
    )


def refuse_absent_run(path: Path) -> None:
    """Refuse a run's directory that is not there."""
    if not path.is_dir():
        raise no_run(path)


def no_start(path: str | Path) -> BadInput:
    """There are no weights to begin with at `path`."""
    return BadInput(f"start is {path}, which is no directory of a finished run: name one")


def refuse_absent_start(path: Path) -> None:
    """Refuse a run to begin with that is not there."""
    if not path.is_dir():
        raise no_start(path)


def refuse_absent_dataset(dataset: str) -> None:
    """Refuse a store's path where nothing or a run is. Names, addresses and what only looks like nothing are left to `siafu.load`."""
    path = Path(dataset)
    if "://" in dataset or path.name == dataset or dataset.startswith("~"):
        return
    # What an overwrite moved aside when it was killed is put back by whoever opens the store.
    aside = path.with_name(f".{path.name}.replaced") if path.name else path
    if not (_may_be(path) or _may_be(aside)):
        raise no_store(path)
    if is_run(path):
        raise run_for_graph(path)


def _may_be(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):  # a name that is too long, or a place we may not look into
        return True
    return True


def refuse_absent_directory(scratch: str | Path | None) -> None:
    """Refuse a directory for scratch files that does not exist."""
    if scratch is not None and not Path(scratch).is_dir():
        raise BadInput(f"scratch directory {scratch} does not exist: make it, or choose another --scratch")

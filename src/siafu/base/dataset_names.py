"""Names of datasets: which there are, where a name is looked for, and the refusal of others, before anything heavy is imported."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.storage.absent import STORE_MANIFEST
from siafu.base.storage.files import cache_directory

GENERATED_NAMES = ("demo", "reddit-small", "reddit-large", "products", "amazon", "friendster")
"""Datasets that can be generated; `graph/generate/shapes.py` has each."""

CATALOGUE_NAMES = ("cora", "citeseer", "pubmed", "ogbn-arxiv", "ogbn-products", *GENERATED_NAMES)
"""Datasets that can be fetched or generated; `graph/datasets/catalogue.py` has each."""


def data_directories() -> list[Path]:
    """The directories that $SIAFU_DATA names, in which stores and bundles are looked for by name."""
    return [Path(part).expanduser() for part in os.environ.get("SIAFU_DATA", "").split(os.pathsep) if part]


def cached_store(name: str) -> Path:
    """Path of the store of that name in the cache."""
    return cache_directory() / "datasets" / name


def unknown_dataset(name: str, known: Iterable[str]) -> BadInput:
    """No dataset has this name; known: the names that there are."""
    near = difflib.get_close_matches(name.lower(), sorted(set(known)), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "give a store's path, or a dataset's name;"
    return BadInput(f"no dataset or store {name!r}: {hint} 'siafu datasets' lists the names")


def refuse_not_generated(name: str) -> None:
    """Refuse a name that cannot be generated, and name the nearest."""
    if name not in GENERATED_NAMES:
        near = difflib.get_close_matches(name, GENERATED_NAMES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(GENERATED_NAMES)}"
        raise BadInput(f"siafu cannot generate {name!r}: {hint}")


def refuse_unknown_name(name: str) -> None:
    """Refuse a name if nothing of that name is in any place where names are looked for. What is there is left to `siafu.load`."""
    path = Path(name)
    if "://" in name or path.name != name or name in CATALOGUE_NAMES:
        return
    folders = [Path(), cache_directory() / "datasets", *data_directories()]
    try:
        if any(
            (folder / each).exists()
            for folder in folders
            for each in (name, f"{name}.npz", f".{name}.replaced")
        ):
            return
        known = {
            each.stem if each.suffix == ".npz" else each.name
            for folder in folders[1:]
            for each in _in(folder)
        }
    except (OSError, ValueError):  # a name that is too long, or a place we may not look into
        return
    raise unknown_dataset(name, {*CATALOGUE_NAMES, *known, *_stores_here()})


def _stores_here() -> list[str]:
    """Names of the stores in the directory where the user is."""
    try:
        return [each.parent.name for each in Path().glob(f"*/{STORE_MANIFEST}")]
    except OSError:
        return []


def _in(folder: Path) -> list[Path]:
    """Entries that can be datasets."""
    return [each for each in folder.iterdir() if each.name[0] != "."] if folder.is_dir() else []

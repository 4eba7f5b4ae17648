"""Datasets by name: `load` finds them where they are, fetches them, or makes them.

Code that fetches, imports or generates is loaded when a dataset is not there yet.
"""

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from siafu.base.dataset_names import CATALOGUE_NAMES, cached_store, data_directories, unknown_dataset
from siafu.base.errors import BadInput, StoreError
from siafu.base.storage.absent import is_run, not_imported, run_for_graph
from siafu.base.storage.documents import parse_json
from siafu.base.storage.files import cache_directory, disk_errors
from siafu.graph.graph import Graph
from siafu.graph.stores.content import is_count
from siafu.graph.stores.remote import is_address, open_store
from siafu.graph.stores.store import MANIFEST, is_store, read_store, refuse_triples

__all__ = ["Listing", "cached_store", "listings", "load", "refuse_unknown"]


def load(name_or_path: str | Path, *, verify: bool = True) -> Graph:
    """A graph by its store's path, by the address of a store elsewhere (`s3://bucket/store`), or by name.

    A name is looked for in the directories of $SIAFU_DATA (a store, or a .npz file), then in the cache, then among
    the datasets that `siafu datasets` lists, which are fetched or generated into the cache when first loaded. An
    address is any that fsspec reads; the store is fetched into the cache, and again when it has changed.

    verify: compare a store's checksums, which reads it once
    """
    if not isinstance(name_or_path, str | Path):
        raise BadInput(
            f"load takes a dataset's name or a store's path, not {type(name_or_path).__name__}: give a str or a Path"
        )
    try:
        if isinstance(name_or_path, str) and is_address(name_or_path):
            return open_store(name_or_path, verify=verify)
        path = _expanded(Path(name_or_path))
        graph = _load(name_or_path, path, verify=verify)
        return graph.replace(source=str(path.resolve()) if is_store(path) else str(name_or_path))
    except OSError as error:
        raise BadInput(
            f"cannot read {str(name_or_path)[:200]!r} ({error.strerror or error}): give a dataset's name or a store's path"
        ) from error


def refuse_unknown(name: str) -> None:
    """Refuse a name that `load` would refuse. Paths and addresses are not looked at, and nothing is read or fetched."""
    path = Path(name)
    if is_address(name) or path.name != name or is_store(path):
        return
    if _in_data_path(name) is None and not is_store(cached_store(name)) and name not in CATALOGUE_NAMES:
        raise _unknown(name, path)


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # no such user: the name of a file, then
        return path


def _load(name_or_path: str | Path, path: Path, *, verify: bool) -> Graph:
    name = str(name_or_path)
    if is_store(path):
        return read_store(path, verify=verify)
    if isinstance(name_or_path, Path) or path.name != name:
        if path.is_file():
            raise not_imported(path)
        return read_store(path)
    if (found := _in_data_path(name)) is not None:
        if found.is_dir():
            return read_store(found, verify=verify)

        from siafu.graph.datasets.bundle import read_bundle

        return read_bundle(found)
    return _load_cached(name, path, verify=verify)


def _load_cached(name: str, path: Path, *, verify: bool) -> Graph:
    store = cached_store(name)
    if not is_store(store):
        if name not in CATALOGUE_NAMES:
            raise _unknown(name, path)

        from siafu.graph.datasets.catalogue import CATALOGUE

        _publish(store, partial(CATALOGUE[name].make, CATALOGUE[name]))
    try:
        return read_store(store, verify=verify)
    except StoreError as error:
        raise StoreError(f"{error} (to have {name} made again, delete {store})") from error


def _unknown(name: str, path: Path) -> BadInput:
    if path.is_file():
        return not_imported(path)
    refuse_triples(path)
    if is_run(path):
        return run_for_graph(path)
    return unknown_dataset(name, (known.name for known in listings()))


def _publish(store: Path, make: Callable[[Path], None]) -> None:
    """Make a store under a name of our own, then show it. Of two processes that do so, one wins and both can read."""
    mine = store.with_name(f".{store.name}.{secrets.token_hex(6)}")
    try:
        make(mine)
        with disk_errors(store):
            try:
                mine.rename(store)
            except OSError:
                if not is_store(store):
                    raise
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def _in_data_path(name: str) -> Path | None:
    for folder in data_directories():
        for candidate in (folder / name, folder / f"{name}.npz"):
            if is_store(candidate) or (candidate.is_file() and candidate.suffix == ".npz"):
                return candidate
    return None


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of `siafu datasets`.

    num_*:  None where only reading the whole file would tell
    source: where it comes from
    ready:  whether `load` needs nothing but the disk
    """

    name: str
    num_vertices: int | None
    num_edges: int | None
    num_features: int | None
    num_classes: int | None
    source: str
    ready: bool


def listings() -> list[Listing]:
    """Everything `load` knows by name: the catalogue, then what else the cache and $SIAFU_DATA hold."""
    from siafu.graph.datasets.catalogue import CATALOGUE

    found: dict[str, Listing] = {}
    for known in CATALOGUE.values():
        ready = is_store(cached_store(known.name))
        counts = (known.num_vertices, known.num_edges, known.num_features, known.num_classes)
        found[known.name] = Listing(known.name, *counts, known.source, ready)
    for store in _stores_in(cache_directory() / "datasets"):
        if store.name not in found:
            found[store.name] = _describe(store, "generated")
    for folder in reversed(data_directories()):
        for file in sorted(folder.glob("*.npz")):
            found[file.stem] = Listing(file.stem, None, None, None, None, str(file), ready=True)
        found |= {store.name: _describe(store, str(store)) for store in _stores_in(folder)}
    return list(found.values())


def _stores_in(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if is_store(path) and path.name[0] != ".")


def _describe(store: Path, source: str) -> Listing:
    """A store's counts; all None of a bad store: `load` says what is wrong with it."""
    counts: tuple[Any, Any, Any, Any] = (None, None, None, None)
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        manifest = parse_json((store / MANIFEST).read_bytes())
        width = manifest["arrays"].get("x", {}).get("shape", [0, 0])[1]
        told = (manifest["num_vertices"], manifest["num_edges"], width, manifest["num_classes"])
        counts = told if all(map(is_count, told)) else counts
    return Listing(store.name, *counts, source, ready=True)

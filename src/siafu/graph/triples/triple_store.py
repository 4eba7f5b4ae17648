"""A store of triples: a directory that holds a knowledge graph as memory-mappable arrays.

    STORE/triples.json            format version, counts, and for each array its file, type, shape and checksums
    STORE/train.npy, valid.npy, test.npy, ids.npy, relations.npy    the arrays of `Triples`

A store is written under another name and renamed, so that it is whole or absent.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import StoreError
from siafu.base.storage.absent import is_file, not_imported
from siafu.base.storage.documents import one_line
from siafu.base.storage.files import disk_errors
from siafu.base.storage.new_directory import DirectoryKind, NewDirectory, recover
from siafu.base.threads import run_all
from siafu.graph.stores import content
from siafu.graph.stores.manifest import ManifestForm, sealed
from siafu.graph.stores.store import TRIPLES_MANIFEST, ArrayWriter, StoredArray, is_store, map_array
from siafu.graph.triples.triples import SPLITS, TripleRows, Triples

VERSION = 1
NAMES = ("ids", "relations")

_FORMAT = "siafu triples"
_BYTES = re.compile(r"\|S[1-9][0-9]{0,5}")
_ROWS = 1 << 22  # looked at by one thread at a time


def _owns(name: str) -> bool:
    return name == TRIPLES_MANIFEST or name in (f"{array}.npy" for array in (*SPLITS, *NAMES))


TRIPLE_STORE = DirectoryKind("store of triples", TRIPLES_MANIFEST, _FORMAT, VERSION, _owns)

_AGAIN = "copy or import the store again"
_FORM = ManifestForm(
    TRIPLE_STORE,
    {
        "name": lambda value: isinstance(value, str),
        "num_entities": content.is_count,
        "num_relations": content.is_count,
        "arrays": lambda value: isinstance(value, dict),
    },
    again=_AGAIN,
    anew=_AGAIN,
)


class TripleStoreWriter:
    """Writes a store of triples array by array; nothing is seen at `path` before `commit`."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self._directory = NewDirectory(path, kind=TRIPLE_STORE, overwrite=overwrite)
        self._arrays: dict[str, ArrayWriter] = {}

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Start the array `name`, a field of `Triples`."""
        if name not in (*SPLITS, *NAMES) or name in self._arrays:
            raise ValueError(f"array {name!r} is unknown, or was started already")
        writer = ArrayWriter(self._directory.open(f"{name}.npy"), dtype, row_shape, self.path)
        self._arrays[name] = writer
        return writer

    def commit(self, *, name: str, num_entities: int, num_relations: int) -> None:
        """Finish: the store appears, whole."""
        arrays = {key: {"file": f"{key}.npy", **writer.close()} for key, writer in self._arrays.items()}
        manifest = {
            "format": _FORMAT,
            "version": VERSION,
            "name": name,
            "num_entities": num_entities,
            "num_relations": num_relations,
            "arrays": arrays,
        }
        with disk_errors(self.path):
            self._directory.open(TRIPLES_MANIFEST).write(sealed(manifest))
        self._directory.publish()

    def __enter__(self) -> "TripleStoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.discard()


def is_triple_store(path: Path) -> bool:
    try:
        recover(path, TRIPLE_STORE)
        return (path / TRIPLES_MANIFEST).is_file()
    except (OSError, ValueError):  # a name that is too long, or a place we may not look into
        return False


def read_triples(path: Path, *, verify: bool = True) -> Triples:
    """Map a store of triples into memory: nothing is copied, and pages are read when used.

    verify: compare every checksum and look at every id first, which reads the store once
    """
    recover(path, TRIPLE_STORE)
    if not (path / TRIPLES_MANIFEST).exists() and is_store(path):
        raise StoreError(
            f"{path} is the store of a graph, which has no relations: give one of triples, that 'siafu import --format triples' wrote"
        )
    if is_file(path):
        raise not_imported(path)
    manifest = _FORM.read(
        path,
        f"no store of triples at {path} ({TRIPLES_MANIFEST} is not there): give the directory that 'siafu import' wrote, copied whole",
    )
    try:
        arrays = {
            each.name: map_array(path / each.file, each, verify=verify) for each in _arrays_of(manifest, path)
        }
        counts = (manifest["num_entities"], manifest["num_relations"])
        found = Triples(
            **arrays,
            num_entities=counts[0],
            num_relations=counts[1],
            name=manifest["name"],
            source=str(path.resolve()),
        )
    except StoreError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise StoreError(f"{where}{error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _FORM.misnamed(path, one_line(error)) from error
    if verify:
        for split in SPLITS:
            _check_ids(path, split, getattr(found, split), counts)
    return found


def _arrays_of(manifest: dict[str, Any], where: Path) -> Iterator[StoredArray]:
    """The arrays that a manifest describes, checked against its counts."""
    for name, entry in manifest["arrays"].items():
        file, dtype, shape = entry["file"], entry["dtype"], entry["shape"]
        if file != f"{name}.npy" or not _owns(file):
            raise StoreError(
                f"{where}/{TRIPLES_MANIFEST} names a file that is not of the store: {one_line(repr(file))}"
            )
        if not isinstance(shape, list) or not all(map(content.is_count, shape)):
            raise StoreError(f"the shape of {name} is {one_line(repr(shape))}, which is none: {_AGAIN}")
        if not _fits(name, dtype, shape, manifest):
            raise StoreError(
                f"{name} is described as {one_line(repr(dtype))} of shape {one_line(shape)}, which no such array has: {_AGAIN}"
            )
        yield StoredArray(name, file, np.dtype(dtype), tuple(shape), entry["crc32"])


def _fits(name: str, dtype: Any, shape: list[int], manifest: dict[str, Any]) -> bool:
    if not isinstance(dtype, str):
        return False
    if name in SPLITS:
        return dtype in (np.dtype(np.int32).str, np.dtype(np.int64).str) and len(shape) == 2 and shape[1] == 3
    wanted = manifest["num_entities" if name == "ids" else "num_relations"]
    return (dtype == np.dtype(np.int64).str or bool(_BYTES.fullmatch(dtype))) and shape == [wanted]


def _check_ids(path: Path, split: str, rows: TripleRows, counts: tuple[int, int]) -> None:
    """Refuse ids that are out of range: no kernel may read beyond a table."""
    stops = np.array([counts[0], counts[1], counts[0]])

    def is_bad(start: int) -> bool:
        block: NDArray[Any] = rows[start : start + _ROWS]
        return bool((block.min(axis=0) < 0).any() or (block.max(axis=0) >= stops).any())

    if any(run_all(is_bad, range(0, len(rows), _ROWS))):
        raise StoreError(
            f"{path / f'{split}.npy'} has ids beyond {counts[0]:,} entities and {counts[1]:,} relations: {_AGAIN}"
        )

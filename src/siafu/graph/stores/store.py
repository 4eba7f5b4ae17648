"""A store: a directory that holds a graph as memory-mappable arrays.

    STORE/graph.json    format version, counts, and for each array its file, type, shape and checksums
    STORE/indptr.npy …  the arrays of `Graph`, one file each
    STORE/advice/       what trainings measured on it, by machine: `siafu.kernels.advice.findings`
    STORE/layout/       the same in another order of the vertices, if `siafu reorder` made one: `graph.reorder.layout`

A store is written under another name and renamed, so that it is whole or absent.
"""

import math
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import StoreError
from siafu.base.storage.absent import STORE_MANIFEST, no_store
from siafu.base.storage.documents import one_line
from siafu.base.storage.files import disk_errors
from siafu.base.storage.new_directory import DirectoryKind, NewDirectory, recover
from siafu.graph import check
from siafu.graph.graph import Graph
from siafu.graph.stores import content
from siafu.graph.stores.manifest import ManifestForm, block_checksums, reading, regular_size, sealed

VERSION = 2  # 2: edges have features or types; a store without is of version 1
MANIFEST = STORE_MANIFEST
TRIPLES_MANIFEST = "triples.json"
"""The manifest of the other kind of store: see `siafu.graph.triples`."""
REQUIRED = ("indptr", "indices")
ON_EDGES = ("edge_attr", "edge_type")
OPTIONAL = ("edge_weight", *ON_EDGES, "x", "y", "train", "val", "test", "ids")
LAYOUT = "layout"
ORDER = "order"  # the array that only a layout has

_FORMAT = "siafu graph"
_NAMES = ("class_names", "type_names", "feature_names")
_ADVICE_FILE = re.compile(r"advice/[0-9a-f]+\.json")
_PARTITION_FILE = re.compile(r"partitions/[^/]+/(partition\.json|owner\.npy)")


def _owns(name: str) -> bool:
    arrays = (f"{array}.npy" for array in (*REQUIRED, *OPTIONAL, ORDER))
    inner = name.removeprefix(f"{LAYOUT}/")
    beside = _PARTITION_FILE.fullmatch(name) or _ADVICE_FILE.fullmatch(name)
    return inner == MANIFEST or inner in arrays or beside is not None


STORE = DirectoryKind("store", MANIFEST, _FORMAT, VERSION, _owns)

MANIFEST_FORM = ManifestForm(
    STORE,
    {
        "name": lambda value: isinstance(value, str),
        "num_vertices": content.is_count,
        "num_edges": content.is_count,
        "num_classes": lambda value: content.is_count(value) and value <= check.MAX_CLASSES,
        "symmetric": lambda value: isinstance(value, bool),
        "arrays": lambda value: isinstance(value, dict),
    },
    again="copy or import the store again",
    anew="copy or import the store again",
)
BLOCK = 64 << 20  # bytes under one checksum: blocks are verified in parallel
HEADER = 128  # bytes before an array's data: rows stay aligned to cache lines when mapped


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array of a store, as its manifest describes it.

    file:      its name in the store's directory
    checksums: the CRC-32 of each block of its data
    """

    name: str
    file: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    checksums: list[int]

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return self.dtype.itemsize * math.prod(self.shape)


class ArrayWriter:
    """Writer of one array of a store, by appending rows; their number is known when it is closed."""

    def __init__(self, file: IO[bytes], dtype: DTypeLike, row_shape: tuple[int, ...], where: Path) -> None:
        self.dtype = np.dtype(dtype)
        self.row_shape = row_shape
        self.rows = 0
        self._file = file
        self._where = where
        self._checksums: list[int] = []
        self._bytes = 0
        with disk_errors(where):
            self._file.write(b"\0" * HEADER)

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        block = np.ascontiguousarray(rows, dtype=self.dtype)
        if block.shape[1:] != self.row_shape:
            raise ValueError(f"rows of shape {block.shape[1:]} for an array of {self.row_shape}")
        self.rows += len(block)
        data = block.reshape(-1).view(np.uint8).data
        with disk_errors(self._where):
            self._file.write(data)
        while len(data):
            in_block = self._bytes % BLOCK
            if in_block == 0:
                self._checksums.append(0)
            part = data[: BLOCK - in_block]
            self._checksums[-1] = zlib.crc32(part, self._checksums[-1])
            self._bytes += len(part)
            data = data[len(part) :]

    def written(self, row: int) -> Any:
        """A row that was appended, as Python's value."""
        size = self.dtype.itemsize * math.prod(self.row_shape)
        with disk_errors(self._where):
            self._file.seek(HEADER + row * size)
            data = self._file.read(size)
            self._file.seek(0, os.SEEK_END)
        return np.frombuffer(data, self.dtype).reshape(self.row_shape).tolist()

    def close(self) -> dict[str, Any]:
        """Finish the file; what the manifest says of it."""
        shape = (self.rows, *self.row_shape)
        with disk_errors(self._where):
            self._file.seek(0)
            self._file.write(npy_header(self.dtype, shape))
            self._file.flush()
        return {"dtype": self.dtype.str, "shape": list(shape), "crc32": self._checksums}


class StoreWriter:
    """Writes a store array by array; nothing is seen at `path` before `commit`.

    with StoreWriter(path) as store:
        indptr = store.array("indptr", np.int64)
        indptr.append(...)
        ...
        store.commit(name="my graph", num_classes=7, symmetric=True)
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self._directory = NewDirectory(path, kind=STORE, overwrite=overwrite)
        self._arrays: dict[str, ArrayWriter] = {}

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Start the array `name`, a field of `Graph`, or the order of a layout."""
        if name not in (*REQUIRED, *OPTIONAL, ORDER) or name in self._arrays:
            raise ValueError(f"array {name!r} is unknown, or was started already")
        writer = ArrayWriter(self._directory.open(f"{name}.npy"), dtype, row_shape, self.path)
        self._arrays[name] = writer
        return writer

    def written(self, name: str, row: int) -> Any:
        """A row of an array, as it was appended."""
        return self._arrays[name].written(row)

    def commit(self, *, name: str, num_classes: int, symmetric: bool, **more: Any) -> None:
        """Finish: the store appears, whole. more: other fields of its manifest."""
        arrays = {key: {"file": f"{key}.npy", **writer.close()} for key, writer in self._arrays.items()}
        manifest = {
            "format": _FORMAT,
            "version": VERSION if any(each in self._arrays for each in ON_EDGES) else 1,
            "name": name,
            "num_vertices": self._arrays["indptr"].rows - 1,
            "num_edges": self._arrays["indices"].rows,
            "num_classes": num_classes,
            "symmetric": symmetric,
            "arrays": arrays,
            **more,
        }
        with disk_errors(self.path):
            self._directory.open(MANIFEST).write(sealed(manifest))
        self._directory.publish()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.discard()


def write_store(graph: Graph, path: Path, *, overwrite: bool = False) -> None:
    """Write a graph that is in memory."""
    with StoreWriter(path, overwrite=overwrite) as store:
        for name in (*REQUIRED, *OPTIONAL):
            values = getattr(graph, name)
            if values is None:
                continue
            writer = store.array(name, values.dtype, values.shape[1:])
            for block in _row_blocks(values):
                writer.append(block)
        names = {field: list(found) for field in _NAMES if (found := getattr(graph, field))}
        store.commit(name=graph.name, num_classes=graph.num_classes, symmetric=graph.is_symmetric, **names)


def is_store(path: Path) -> bool:
    try:
        recover(path, STORE)
        return (path / MANIFEST).is_file()
    except (OSError, ValueError):  # a name that is too long, or a place we may not look into
        return False


def read_store(path: Path, *, verify: bool = True) -> Graph:
    """Map a store into memory: nothing is copied, pages are read when used, and never written back.

    verify: compare every checksum and look at every edge, label and split first, which reads the store once.
            Sizes and types are always compared.
    """
    from siafu.graph.reorder.layout import read_layout  # which reads and writes stores itself

    arrays, manifest = read_arrays(path, verify=verify)
    arrays.pop(ORDER, None)
    graph = Graph(
        **arrays,
        num_classes=manifest["num_classes"],
        class_names=_class_names(manifest),
        type_names=_names(manifest, "type_names"),
        feature_names=_names(manifest, "feature_names"),
        name=manifest["name"],
    )
    # Known since the store was written; finding it out again would read every edge.
    graph.__dict__["is_symmetric"] = manifest["symmetric"]
    layout = read_layout(path, graph, verify=verify)
    return graph if layout is None else graph.replace(layout=layout)


def read_arrays(path: Path, *, verify: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a store, mapped, and its manifest; verify: as for `read_store`."""
    recover(path, STORE)
    refuse_triples(path)
    manifest = MANIFEST_FORM.read(path, str(no_store(path)))
    try:
        arrays = _map_all(path, manifest, verify=verify)
        graph = Graph(
            **{name: values for name, values in arrays.items() if name != ORDER},
            num_classes=manifest["num_classes"],
            class_names=_class_names(manifest),
            type_names=_names(manifest, "type_names"),
            feature_names=_names(manifest, "feature_names"),
            name=manifest["name"],
        )
        if graph.feature_names and len(graph.feature_names) != graph.num_features:
            raise ValueError(
                f"'feature_names' names {len(graph.feature_names)} columns, and there are {graph.num_features}"
            )
        if verify:
            content.check_values(graph)
    except StoreError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise StoreError(f"{where}{error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MANIFEST_FORM.misnamed(path, one_line(error)) from error
    return arrays, manifest


def _class_names(manifest: dict[str, Any]) -> tuple[str, ...]:
    """Names of the classes; none where labels are numbers, as in all stores of earlier versions."""
    names = _names(manifest, "class_names")
    if names and len(names) != manifest["num_classes"]:
        raise ValueError(f"'class_names' names {len(names)} classes, and there are {manifest['num_classes']}")
    return names


def _names(manifest: dict[str, Any], field: str) -> tuple[str, ...]:
    """A field that lists words; none where there is no such field."""
    names = manifest.get(field, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{field!r} is no list of words")
    return tuple(names)


def refuse_triples(path: Path) -> None:
    """Refuse a store of triples where a graph's is wanted."""
    if (path / TRIPLES_MANIFEST).is_file() and not (path / MANIFEST).exists():
        raise StoreError(
            f"{path} is a store of triples, not of a graph: learn embeddings of it with 'siafu embed {path}'"
        )


def arrays_of(manifest: dict[str, Any], where: Path | str) -> Iterator[StoredArray]:
    """The arrays that a manifest describes, checked against its counts of vertices and edges."""
    for name, entry in manifest["arrays"].items():
        if Path(entry["file"]).name != entry["file"]:
            raise StoreError(
                f"{where}/{MANIFEST} names a file outside of the store: {one_line(repr(entry['file']))}"
            )
        counts = (manifest["num_vertices"], manifest["num_edges"])
        form = content.described(name, entry["dtype"], entry["shape"], *counts)
        yield StoredArray(name, entry["file"], *form, entry["crc32"])


def _map_all(path: Path, manifest: dict[str, Any], *, verify: bool) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        each.name: map_array(path / each.file, each, verify=verify) for each in arrays_of(manifest, path)
    }
    labels = arrays.get("y")
    if labels is not None and labels.ndim == 2 and labels.shape[1] != manifest["num_classes"]:
        raise MANIFEST_FORM.misnamed(path, "'num_classes'")
    return arrays


def map_array(file: Path, array: StoredArray, *, verify: bool) -> NDArray[Any]:
    """Map one array of a store into memory."""
    with reading(file, MANIFEST_FORM.again):
        check_array_file(file, array.dtype, array.shape, MANIFEST_FORM.again)
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        # Copy-on-write: the arrays count as writable, so kernels have one form, and the file never changes.
        mapped = np.memmap(file, array.dtype, mode="c", offset=HEADER, shape=array.shape).view(np.ndarray)
    if verify:
        _verify(file, mapped, array.checksums)
    return mapped


def check_array_file(file: Path, dtype: np.dtype[Any], shape: tuple[int, ...], again: str) -> None:
    """Refuse a file that does not hold such an array. Its header is compared, never parsed: it can do no harm."""
    found, wanted = regular_size(file), HEADER + dtype.itemsize * math.prod(shape)
    if found != wanted:
        raise StoreError(
            f"{file} has {found} bytes instead of {wanted} for {shape[0]:,} rows: it is truncated, or of another graph; {again}"
        )
    with file.open("rb") as opened:
        if opened.read(HEADER) != npy_header(dtype, shape):
            raise StoreError(
                f"{file} is corrupted: its header is not that of an array of shape {shape}; {again}"
            )


def _verify(file: Path, mapped: NDArray[Any], expected: list[int]) -> None:
    found = block_checksums(mapped, BLOCK)
    if found != expected:
        wrong = next((k for k, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
        raise StoreError(
            f"{file} is corrupted: the checksum of its {BLOCK >> 20} MB block {wrong} is wrong; {MANIFEST_FORM.again}"
        )


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """NumPy's own header, padded to a fixed size so that it can be written last."""
    description = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    text = str(description).encode("latin1")
    prefix = npy.magic(1, 0)
    room = HEADER - len(prefix) - 2
    if len(text) + 1 > room:
        raise ValueError(f"array header too long: {text!r}")
    return prefix + room.to_bytes(2, "little") + text.ljust(room - 1) + b"\n"


def _row_blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    rows = max(1, BLOCK // max(1, values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))))
    for start in range(0, len(values), rows):
        yield values[start : start + rows]

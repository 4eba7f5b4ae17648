"""A store: a directory that holds a graph as memory-mappable arrays.

    STORE/graph.json    format version, counts, and for each array its file, type, shape and checksums
    STORE/indptr.npy …  the arrays of `Graph`, one file each

A store is written under another name and renamed, so that it is whole or absent.
"""

import re
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from siafu.base.documents import one_line, parse_json
from siafu.base.errors import StoreError
from siafu.base.files import disk_errors
from siafu.base.new_directory import Kind, NewDirectory, recover
from siafu.base.threads import run_all
from siafu.graph import check, content
from siafu.graph.graph import Graph
from siafu.graph.manifest import is_intact, sealed

VERSION = 1
MANIFEST = "graph.json"
REQUIRED = ("indptr", "indices")
OPTIONAL = ("edge_weight", "x", "y", "train", "val", "test", "ids")

_FORMAT = "siafu graph"
_PARTITION_FILE = re.compile(r"partitions/[^/]+/(partition\.json|owner\.npy)")


def _owns(name: str) -> bool:
    arrays = (f"{array}.npy" for array in (*REQUIRED, *OPTIONAL))
    return name == MANIFEST or name in arrays or _PARTITION_FILE.fullmatch(name) is not None


STORE = Kind("store", MANIFEST, _FORMAT, VERSION, _owns)

_FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "num_vertices": content.is_count,
    "num_edges": content.is_count,
    "num_classes": lambda value: content.is_count(value) and value <= check.MAX_CLASSES,
    "symmetric": lambda value: isinstance(value, bool),
    "arrays": lambda value: isinstance(value, dict),
}
BLOCK = 64 << 20  # bytes under one checksum: blocks are verified in parallel
_MOST_MANIFEST_BYTES = 64 << 20  # a checksum for each 64 MB of 100 TB takes less
HEADER = 128  # bytes before an array's data: rows stay aligned to cache lines when mapped


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array of a store, as its manifest describes it.

    file:      its name in the store's directory
    checksums: the CRC-32 of each block of its data
    """

    name: str
    file: str
    form: content.Described
    checksums: list[int]


class ArrayWriter:
    """One array of a store, appended to; how many rows it has is known when it is closed."""

    def __init__(self, file: IO[bytes], dtype: DTypeLike, row_shape: tuple[int, ...], where: Path) -> None:
        self.dtype = np.dtype(dtype)
        self.row_shape = row_shape
        self.rows = 0
        self._file = file
        self._where = where
        self._checksums: list[int] = []
        self._crc = 0
        self._in_block = 0
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
            part = data[: BLOCK - self._in_block]
            self._crc = zlib.crc32(part, self._crc)
            self._in_block += len(part)
            data = data[len(part) :]
            if self._in_block == BLOCK:
                self._end_block()

    def close(self) -> dict[str, Any]:
        """Finish the file; what the manifest says of it."""
        if self._in_block:
            self._end_block()
        shape = (self.rows, *self.row_shape)
        with disk_errors(self._where):
            self._file.seek(0)
            self._file.write(npy_header(self.dtype, shape))
            self._file.flush()
        return {"dtype": self.dtype.str, "shape": list(shape), "crc32": self._checksums}

    def _end_block(self) -> None:
        self._checksums.append(self._crc)
        self._crc = 0
        self._in_block = 0


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
        """Start the array `name`, a field of `Graph`."""
        if name not in (*REQUIRED, *OPTIONAL) or name in self._arrays:
            raise ValueError(f"array {name!r} is unknown, or was started already")
        writer = ArrayWriter(self._directory.open(f"{name}.npy"), dtype, row_shape, self.path)
        self._arrays[name] = writer
        return writer

    def commit(self, *, name: str, num_classes: int, symmetric: bool) -> None:
        """Finish: the store appears, whole."""
        arrays = {key: {"file": f"{key}.npy", **writer.close()} for key, writer in self._arrays.items()}
        manifest = {
            "format": _FORMAT,
            "version": VERSION,
            "name": name,
            "num_vertices": self._arrays["indptr"].rows - 1,
            "num_edges": self._arrays["indices"].rows,
            "num_classes": num_classes,
            "symmetric": symmetric,
            "arrays": arrays,
        }
        with disk_errors(self.path):
            self._directory.open(MANIFEST).write(sealed(manifest))
        self._directory.publish()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        store.commit(name=graph.name, num_classes=graph.num_classes, symmetric=graph.is_symmetric)


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
    recover(path, STORE)
    manifest = check_manifest(_parse_manifest(path), path)
    try:
        arrays = _map_all(path, manifest, verify=verify)
        graph = Graph(**arrays, num_classes=manifest["num_classes"], name=manifest["name"])
        if verify:
            content.check_values(graph)
    except StoreError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise StoreError(f"{where}{error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _misnamed(path, one_line(error)) from error
    # Known since the store was written; finding it out again would read every edge.
    graph.__dict__["is_symmetric"] = manifest["symmetric"]
    return graph


def check_manifest(manifest: Any, where: Path | str) -> dict[str, Any]:
    """What a store's manifest says, if it is one that this Siafu reads.

    where: the store it was read from
    """
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise StoreError(f"{where}/{MANIFEST} does not describe a siafu graph")
    version = manifest.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise StoreError(
            f"{where} is a store of version {one_line(version)}, this siafu reads up to {VERSION}: upgrade with pip install -U siafu"
        )
    for field, fits in _FIELDS.items():
        if not fits(manifest.get(field)):
            raise _misnamed(where, repr(field))
    if not is_intact(manifest):
        raise StoreError(
            f"{where}/{MANIFEST} is corrupted: its checksum is wrong; copy or import the store again"
        )
    return manifest


def arrays_of(manifest: dict[str, Any], where: Path | str) -> Iterator[StoredArray]:
    """The arrays that a manifest describes, if the graph it counts may have them so."""
    for name, entry in manifest["arrays"].items():
        if Path(entry["file"]).name != entry["file"]:
            raise StoreError(
                f"{where}/{MANIFEST} names a file outside of the store: {one_line(repr(entry['file']))}"
            )
        counts = (manifest["num_vertices"], manifest["num_edges"])
        form = content.described(name, entry["dtype"], entry["shape"], *counts)
        yield StoredArray(name, entry["file"], form, entry["crc32"])


def _parse_manifest(path: Path) -> Any:
    file = path / MANIFEST
    try:
        if not path.is_dir():
            raise StoreError(
                f"no store at {path}: give the directory that 'siafu import' or 'siafu generate' wrote"
            )
        if (size := regular_size(file)) > _MOST_MANIFEST_BYTES:
            raise StoreError(f"{file} has {size:,} bytes, which no manifest has: import the graph again")
        return parse_json(file.read_bytes())
    except FileNotFoundError as error:
        raise StoreError(
            f"{path} has no {MANIFEST}: it is not a store, or not all of it was copied"
        ) from error
    except OSError as error:
        raise StoreError(
            f"{file} cannot be read ({error.strerror}): copy or import the store again"
        ) from error
    except ValueError as error:
        raise StoreError(f"{file} is not readable JSON ({error}): import the graph again") from error


def _misnamed(where: Path | str, what: str) -> StoreError:
    return StoreError(f"{where}/{MANIFEST} lacks or misnames a field ({what}): import the graph again")


def regular_size(file: Path) -> int:
    """How many bytes a file has. What is no file is refused: opening a pipe would wait forever."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{file} is not a file: copy or import the store again")
    return status.st_size


def _map_all(path: Path, manifest: dict[str, Any], *, verify: bool) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        each.name: _map(path / each.file, each.form, each.checksums if verify else None)
        for each in arrays_of(manifest, path)
    }
    labels = arrays.get("y")
    if labels is not None and labels.ndim == 2 and labels.shape[1] != manifest["num_classes"]:
        raise _misnamed(path, "'num_classes'")
    return arrays


def _map(file: Path, array: content.Described, checksums: list[int] | None) -> NDArray[Any]:
    try:
        actual = regular_size(file)
        if actual != HEADER + array.size:
            raise StoreError(
                f"{file} has {actual} bytes instead of {HEADER + array.size}: it is truncated; copy or import it again"
            )
        with file.open("rb") as opened:
            header = opened.read(HEADER)
        if header != npy_header(array.dtype, array.shape):
            raise StoreError(
                f"{file} is corrupted: its header is not what {MANIFEST} says; copy or import it again"
            )
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        # Copy-on-write: the arrays count as writable, so kernels have one form, and the file never changes.
        mapped = np.memmap(file, array.dtype, mode="c", offset=HEADER, shape=array.shape).view(np.ndarray)
    except FileNotFoundError as error:
        raise StoreError(
            f"{file} is missing: the store was not copied whole; copy or import it again"
        ) from error
    except OSError as error:
        raise StoreError(
            f"{file} cannot be read ({error.strerror}): copy or import the store again"
        ) from error
    if checksums is not None:
        _verify(file, mapped, checksums)
    return mapped


def _verify(file: Path, mapped: NDArray[Any], expected: list[int]) -> None:
    data = mapped.reshape(-1).view(np.uint8)
    found = run_all(lambda start: zlib.crc32(data[start : start + BLOCK].data), range(0, len(data), BLOCK))
    if found != expected:
        wrong = next((k for k, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
        raise StoreError(
            f"{file} is corrupted: the checksum of its {BLOCK >> 20} MB block {wrong} is wrong; copy or import it again"
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

"""Stores elsewhere: at any address that fsspec reads, fetched once into this machine's cache and mapped there.

    $SIAFU_CACHE/stores/<hash of the address and of the manifest>/    a store like any other

What is fetched is compared with the manifest's checksums on its way and shown under its name when all of it is there.
A store that changes at its address has another manifest, and is fetched anew.
"""

import fcntl
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from siafu.base.documents import parse_json
from siafu.base.errors import BadInput, SiafuError, StoreError
from siafu.base.files import cache_directory, disk_errors
from siafu.base.new_directory import NewDirectory
from siafu.base.threads import run_all
from siafu.graph.graph import Graph
from siafu.graph.partition.saved import PARTITION
from siafu.graph.store import (
    BLOCK,
    HEADER,
    MANIFEST,
    STORE,
    StoredArray,
    arrays_of,
    check_manifest,
    is_store,
    npy_header,
    read_store,
)

_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)
_ON_THIS_MACHINE = re.compile(r"(?:file|local)://", re.IGNORECASE)
_PARTITION = re.compile(r"[a-z]+-\d+-\d+")
_PARTITION_FILES = ("partition.json", "owner.npy")


def is_address(source: str | Path) -> bool:
    """Whether it names a place like `s3://bucket/store`, and not a path or a dataset."""
    return isinstance(source, str) and _ADDRESS.fullmatch(source) is not None


def open_store(source: str, *, verify: bool = False) -> Graph:
    """Map the store at a path or an address; `Graph.source` is what was given.

    verify: as for `read_store`. What is fetched is compared with its checksums in any case.
    """
    return read_store(store_directory(source), verify=verify).replace(source=source)


def store_directory(source: str) -> Path:
    """Where this machine has the files of the store at a path or an address; fetched if they are not there."""
    if not is_address(source):
        return Path(source)
    if _ON_THIS_MACHINE.match(source):
        return Path(_Place(source).path)
    return _fetched(_Place(source))


def partitions_directory(source: str) -> Path:
    """Where this machine has the partitions that the store at a path or an address holds, as they are there now."""
    store = store_directory(source)
    if is_address(source) and not _ON_THIS_MACHINE.match(source):
        with _alone(store):
            _update_partitions(_Place(source), store / "partitions")
    return store / "partitions"


def publish_partition(source: str, saved: Path) -> None:
    """Have the store at an address hold a partition that was saved in the store as it is on this machine."""
    if not is_address(source) or _ON_THIS_MACHINE.match(source):
        return  # it is there already
    place = _Place(source)
    # What names it comes last: until then there is no such partition.
    for name in reversed(_PARTITION_FILES):
        place.write(f"partitions/{saved.name}/{name}", (saved / name).read_bytes())


class _Place:
    """A directory in one of fsspec's file systems; what goes wrong there is one clear line."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        with self._errors("opened"):
            # Comes with PyTorch; a cluster's extra asks for it by name.
            from fsspec.core import url_to_fs

            self._files, self.path = url_to_fs(self.address)
            self._files.invalidate_cache()  # what was listed before may have changed

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """A file of the directory, or its bytes from `start` up to `end`."""
        with self._errors("read", name):
            found: bytes = self._files.cat_file(f"{self.path}/{name}", start=start, end=end)
        return found

    def write(self, name: str, data: bytes) -> None:
        """Put a file into the directory."""
        with self._errors("written", name):
            self._files.pipe_file(f"{self.path}/{name}", data)

    def size(self, name: str) -> int:
        with self._errors("read", name):
            return int(self._files.size(f"{self.path}/{name}"))

    def names(self, directory: str) -> list[str]:
        """What is in a directory of it; nothing if there is none."""
        with self._errors("listed", directory):
            try:
                found = self._files.ls(f"{self.path}/{directory}", detail=False)
            except FileNotFoundError:
                return []
        return sorted(Path(each.rstrip("/")).name for each in found)

    @contextmanager
    def _errors(self, done: str, name: str | None = None) -> Iterator[None]:
        where = self.address if name is None else f"{self.address}/{name}"
        try:
            yield
        except SiafuError:
            raise
        except FileNotFoundError as error:
            raise StoreError(
                f"no store at {self.address} ({name} is not there): give the address of the directory that "
                "'siafu import' or 'siafu generate' wrote, copied whole"
            ) from error
        except ImportError as error:
            raise BadInput(f"{where} cannot be {done}: {_one_line(error)}") from error
        except Exception as error:  # each file system has errors of its own
            raise BadInput(
                f"{where} cannot be {done} ({_one_line(error)}): check the address, the network and who may read it"
            ) from error


@dataclass(frozen=True, slots=True)
class _Piece:
    """A block of an array: where it stands in its file, and its checksum."""

    array: StoredArray
    number: int

    @property
    def span(self) -> tuple[int, int]:
        start = self.number * BLOCK
        return HEADER + start, HEADER + min(start + BLOCK, self.array.form.size)


def _fetched(place: _Place) -> Path:
    data = place.read(MANIFEST)
    key = hashlib.sha256(f"{place.address}\n".encode() + data).hexdigest()[:20]
    store = cache_directory() / "stores" / key
    if is_store(store):
        return store
    manifest = check_manifest(_parsed(data, place), place.address)
    try:
        arrays = list(arrays_of(manifest, place.address))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(f"{place.address}/{MANIFEST} lacks or misnames a field ({error})") from error
    with _alone(store):
        if not is_store(store):  # another process may have fetched it while this one waited
            _fetch(place, arrays, data, store)
    return store


def _parsed(data: bytes, place: _Place) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        raise StoreError(f"{place.address}/{MANIFEST} is not readable JSON ({error})") from error


def _fetch(place: _Place, arrays: list[StoredArray], manifest: bytes, store: Path) -> None:
    # Where files cannot be locked another process may have been faster: its store and ours are the same.
    directory = NewDirectory(store, kind=STORE, overwrite=True)
    try:
        files: dict[str, IO[bytes]] = {}
        for array in arrays:
            _check_start(place, array)
            files[array.name] = directory.open(array.file)
            _write(files[array.name], npy_header(array.form.dtype, array.form.shape), 0, store)
        pieces = [_Piece(array, number) for array in arrays for number in range(-(-array.form.size // BLOCK))]
        run_all(lambda piece: _fetch_piece(place, piece, files[piece.array.name], store), pieces)
        with disk_errors(store):
            directory.open(MANIFEST).write(manifest)
        directory.publish()
    finally:
        directory.discard()


def _check_start(place: _Place, array: StoredArray) -> None:
    """Refuse a file that is not what the manifest describes before any of it is fetched."""
    if not STORE.owns(array.file):
        raise StoreError(
            f"{place.address}/{MANIFEST} names {array.file!r}, which no store has: copy it again"
        )
    wanted = HEADER + array.form.size
    if (found := place.size(array.file)) != wanted:
        raise StoreError(
            f"{place.address}/{array.file} has {found} bytes instead of {wanted}: it is truncated; copy it again"
        )
    if place.read(array.file, 0, HEADER) != npy_header(array.form.dtype, array.form.shape):
        raise StoreError(
            f"{place.address}/{array.file} is corrupted: its header is not what {MANIFEST} says; copy it again"
        )


def _fetch_piece(place: _Place, piece: _Piece, file: IO[bytes], store: Path) -> None:
    start, end = piece.span
    data = place.read(piece.array.file, start, end)
    known = piece.array.checksums
    if len(data) != end - start or piece.number >= len(known) or zlib.crc32(data) != known[piece.number]:
        raise StoreError(
            f"{place.address}/{piece.array.file} is corrupted: the checksum of its {BLOCK >> 20} MB block "
            f"{piece.number} is wrong; copy it again"
        )
    _write(file, data, start, store)


def _write(file: IO[bytes], data: bytes, offset: int, where: Path) -> None:
    left = memoryview(data)
    with disk_errors(where):
        while left:
            written = os.pwrite(file.fileno(), left, offset)
            left, offset = left[written:], offset + written


def _update_partitions(place: _Place, here: Path) -> None:
    """Make the partitions here those that are there. Each is checked when it is read."""
    there = [name for name in place.names("partitions") if _PARTITION.fullmatch(name)]
    for name in {path.name for path in here.glob("*")} - set(there):
        for file in _PARTITION_FILES:
            with suppress(FileNotFoundError):
                (here / name / file).unlink()
        with suppress(OSError):
            (here / name).rmdir()
    for name in there:
        told = place.read(f"partitions/{name}/{_PARTITION_FILES[0]}")
        known = here / name / _PARTITION_FILES[0]
        if not known.is_file() or known.read_bytes() != told:
            _fetch_partition(place, name, told, here / name)


def _fetch_partition(place: _Place, name: str, manifest: bytes, path: Path) -> None:
    mark, owner = _PARTITION_FILES
    directory = NewDirectory(path, kind=PARTITION, overwrite=True)
    try:
        with disk_errors(path):
            directory.open(owner).write(place.read(f"partitions/{name}/{owner}"))
            directory.open(mark).write(manifest)
        directory.publish()
    finally:
        directory.discard()


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """One process of this machine at a time: servers that start together fetch a store once."""
    lock = store.with_name(f".{store.name}.lock")
    with disk_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    with file:
        with suppress(
            OSError
        ):  # a file system without locks: then it may be fetched twice, and one of them wins
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

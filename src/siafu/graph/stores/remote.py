"""Stores elsewhere: at any address that fsspec reads, fetched once into this machine's cache and mapped there.

    $SIAFU_CACHE/stores/<hash of the address and of the manifest>/    a store like any other

What is fetched is compared with the manifest's checksums on its way and shown under its name when all of it is there.
A store that changes at its address has another manifest, and is fetched anew.
"""

import fcntl
import hashlib
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from siafu.base.errors import BadInput, SiafuError, StoreError
from siafu.base.storage.documents import one_line
from siafu.base.storage.files import cache_directory, disk_errors, write_at
from siafu.base.storage.new_directory import NewDirectory
from siafu.base.threads import run_all
from siafu.graph.graph import Graph
from siafu.graph.partition import saved
from siafu.graph.stores.store import (
    BLOCK,
    HEADER,
    MANIFEST,
    MANIFEST_FORM,
    STORE,
    StoredArray,
    arrays_of,
    is_store,
    npy_header,
    read_store,
)

_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)
_ON_THIS_MACHINE = re.compile(r"(?:file|local)://", re.IGNORECASE)
_PARTITION = re.compile(r"[a-z]+-\d+-\d+")


def is_address(source: str | Path) -> bool:
    """Whether it names a place like `s3://bucket/store`, and not a path or a dataset."""
    return isinstance(source, str) and _ADDRESS.fullmatch(source) is not None


def open_store(source: str, *, verify: bool = False) -> Graph:
    """Map the store at a path or an address; `Graph.source` is what was given.

    verify: as for `read_store`. What is fetched is compared with its checksums in any case.
    """
    return read_store(store_directory(source), verify=verify).replace(source=source)


def store_directory(source: str) -> Path:
    """Local directory of the store at a path or an address; a store elsewhere is fetched first."""
    if not is_address(source):
        return Path(source)
    place = _Place(source)
    return _fetched(place) if _is_elsewhere(source) else Path(place.path)


def _is_elsewhere(source: str) -> bool:
    return is_address(source) and not _ON_THIS_MACHINE.match(source)


def partitions_directory(source: str) -> Path:
    """Local directory with the current partitions of the store at a path or an address."""
    store = store_directory(source)
    if _is_elsewhere(source):
        with _alone(store):
            _update_partitions(_Place(source), store / "partitions")
    return store / "partitions"


def publish_partition(source: str, partition: Path) -> None:
    """Copy a partition from this machine's copy of a store to the store at its address."""
    if not _is_elsewhere(source):
        return  # it is there already
    place = _Place(source)
    # What names it comes last: until then there is no such partition.
    for name in (saved.OWNER, saved.MANIFEST):
        place.write(f"partitions/{partition.name}/{name}", (partition / name).read_bytes())


class _Place:
    """A directory in one of fsspec's file systems; every error there is one clear line."""

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
        """Names in one of its directories; none if there is no such directory."""
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
            raise BadInput(f"{where} cannot be {done}: {one_line(error)}") from error
        except Exception as error:  # each file system has errors of its own
            raise BadInput(
                f"{where} cannot be {done} ({one_line(error)}): check the address, the network and who may read it"
            ) from error


def _fetched(place: _Place) -> Path:
    data = place.read(MANIFEST)
    key = hashlib.sha256(f"{place.address}\n".encode() + data).hexdigest()[:20]
    store = cache_directory() / "stores" / key
    if is_store(store):
        return store
    manifest = MANIFEST_FORM.parsed(data, place.address)
    try:
        arrays = list(arrays_of(manifest, place.address))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise MANIFEST_FORM.misnamed(place.address, one_line(error)) from error
    with _alone(store):
        if not is_store(store):  # another process may have fetched it while this one waited
            _fetch(place, arrays, data, store)
    return store


def _fetch(place: _Place, arrays: list[StoredArray], manifest: bytes, store: Path) -> None:
    # Where files cannot be locked another process may have been faster: its store and ours are the same.
    with NewDirectory(store, kind=STORE, overwrite=True) as directory, disk_errors(store):
        files: dict[str, IO[bytes]] = {}
        for array in arrays:
            _check_start(place, array)
            files[array.name] = directory.open(array.file)
            write_at(files[array.name], npy_header(array.dtype, array.shape), 0)
        pieces = [(array, start) for array in arrays for start in range(0, array.size, BLOCK)]
        run_all(lambda piece: _fetch_piece(place, *piece, files[piece[0].name]), pieces)
        directory.open(MANIFEST).write(manifest)
        directory.publish()


def _check_start(place: _Place, array: StoredArray) -> None:
    """Refuse a file that is not what the manifest describes before any of it is fetched."""
    if not STORE.owns(array.file):
        raise StoreError(f"{place.address}/{MANIFEST} names {array.file!r}, which no store has")
    wanted = HEADER + array.size
    if (found := place.size(array.file)) != wanted:
        raise StoreError(
            f"{place.address}/{array.file} has {found} bytes instead of {wanted}: it is truncated; copy it again"
        )
    if place.read(array.file, 0, HEADER) != npy_header(array.dtype, array.shape):
        raise StoreError(
            f"{place.address}/{array.file} is corrupted: its header is not what {MANIFEST} says; copy it again"
        )


def _fetch_piece(place: _Place, array: StoredArray, start: int, file: IO[bytes]) -> None:
    """Fetch the block of an array's data that begins at `start`, and compare its checksum."""
    count, number = min(BLOCK, array.size - start), start // BLOCK
    data = place.read(array.file, HEADER + start, HEADER + start + count)
    if len(data) != count or array.checksums[number : number + 1] != [zlib.crc32(data)]:
        raise StoreError(
            f"{place.address}/{array.file} is corrupted: the checksum of its {BLOCK >> 20} MB block {number} is wrong; copy it again"
        )
    write_at(file, data, HEADER + start)


def _update_partitions(place: _Place, here: Path) -> None:
    """Copy the partitions of the store to this machine, and remove others. Each is checked when it is read."""
    there = [name for name in place.names("partitions") if _PARTITION.fullmatch(name)]
    for name in {path.name for path in here.glob("*")} - set(there):
        saved.PARTITION.remove(here / name)
    for name in there:
        manifest = place.read(f"partitions/{name}/{saved.MANIFEST}")
        known = here / name / saved.MANIFEST
        if not known.is_file() or known.read_bytes() != manifest:
            owner = place.read(f"partitions/{name}/{saved.OWNER}")
            files = {saved.OWNER: [owner], saved.MANIFEST: [manifest]}
            saved.write_partition(here / name, files, overwrite=True)


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Lock a store against other processes of this machine: servers that start together fetch it once."""
    lock = store.with_name(f".{store.name}.lock")
    with disk_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    with file:
        # On a file system without locks it may be fetched twice, and one of them wins.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield

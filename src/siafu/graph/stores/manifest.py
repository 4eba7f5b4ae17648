"""Manifests: JSON that describes the files next to it, with a checksum of its own."""

import json
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import StoreError
from siafu.base.storage.documents import one_line, parse_json
from siafu.base.storage.new_directory import DirectoryKind
from siafu.base.threads import run_all

_CHECKSUM = "checksum"
_MOST_BYTES = 64 << 20  # a checksum for each 64 MB of 100 TB takes less


@dataclass(frozen=True, slots=True)
class ManifestForm:
    """The form of the manifest of a kind of directory.

    fields: what each of its fields must be like
    again:  what to do about a damaged one
    anew:   what to do about one that does not say of which kind it is; {where} stands for the directory
    """

    kind: DirectoryKind
    fields: Mapping[str, Callable[[Any], bool]]
    again: str
    anew: str

    def read(self, path: Path, absent: str) -> dict[str, Any]:
        """The manifest in a directory; `absent` is the error where there is none."""
        file = path / self.kind.manifest
        with reading(file, self.anew.format(where=path), absent):
            if (size := regular_size(file)) > _MOST_BYTES:
                raise StoreError(f"{file} has {size:,} bytes, which no manifest has: {self.again}")
            data = file.read_bytes()
        return self.parsed(data, path)

    def parsed(self, data: bytes, where: Path | str) -> dict[str, Any]:
        """The fields of a manifest, checked; `where` is the directory that it was read from."""
        file, anew = f"{where}/{self.kind.manifest}", self.anew.format(where=where)
        try:
            manifest = parse_json(data)
        except ValueError as error:
            raise StoreError(f"{file} is not readable JSON ({error}): {anew}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != self.kind.format:
            raise StoreError(f"{file} does not describe a {self.kind.format}: {anew}")
        version = manifest.get("version")
        if type(version) is not int or not 1 <= version <= self.kind.version:
            raise StoreError(
                f"{where} is a {self.kind.name} of version {one_line(version)}, this siafu reads up to {self.kind.version}: upgrade with pip install -U siafu"
            )
        for field, fits in self.fields.items():
            if not fits(manifest.get(field)):
                raise self.misnamed(where, repr(field))
        # One without a checksum is of a Siafu that wrote none.
        if manifest.get(_CHECKSUM, checksum := _checksum(manifest)) != checksum:
            raise StoreError(f"{file} is corrupted: its checksum is wrong; {self.again}")
        return manifest

    def misnamed(self, where: Path | str, what: str) -> StoreError:
        return StoreError(f"{where}/{self.kind.manifest} lacks or misnames a field ({what}): {self.again}")


def sealed(fields: dict[str, Any]) -> bytes:
    """A manifest to write, with the checksum that these fields have."""
    return json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=1).encode()


@contextmanager
def reading(file: Path, again: str, absent: str | None = None) -> Iterator[None]:
    """Turn the system's errors about a file of a store into one clear line each."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(absent or f"{file} is missing: the store was not copied whole; {again}") from error
    except OSError as error:
        raise StoreError(f"{file} cannot be read ({error.strerror}): {again}") from error


def regular_size(file: Path) -> int:
    """Bytes of a file. Anything but a file is refused: opening a pipe would wait forever."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{file} is not a file: copy or import the store again")
    return status.st_size


def block_checksums(values: NDArray[Any], block: int) -> list[int]:
    """CRC-32 of each `block` bytes of an array, computed on all threads."""
    if values.size == 0:
        return []
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return run_all(lambda start: zlib.crc32(data[start : start + block].data), range(0, len(data), block))


def _checksum(fields: dict[str, Any]) -> int:
    """The CRC-32 of what the other fields say, however they are spaced and ordered."""
    others = {name: value for name, value in fields.items() if name != _CHECKSUM}
    return zlib.crc32(json.dumps(others, sort_keys=True, separators=(",", ":")).encode())

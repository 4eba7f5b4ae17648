"""Partitions in a store, beside the graph they belong to.

    STORE/partitions/<method>-<parts>-<seed>/partition.json    version, method, parts, seed, the graph's fingerprint
    STORE/partitions/<method>-<parts>-<seed>/owner.npy         the owner of each vertex

One is written under another name and renamed, so that it is whole or absent; the store's own files never change.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from siafu.base.documents import one_line, parse_json
from siafu.base.errors import StoreError
from siafu.base.files import disk_errors
from siafu.base.new_directory import Kind, NewDirectory, recover
from siafu.graph.content import is_count
from siafu.graph.fingerprint import fingerprint
from siafu.graph.graph import Graph
from siafu.graph.manifest import is_intact, sealed
from siafu.graph.partition.partition import Owners, Partition, owner_dtype
from siafu.graph.store import npy_header, regular_size

VERSION = 1
MANIFEST = "partition.json"
OWNER = "owner.npy"

_FORMAT = "siafu partition"
PARTITION = Kind("partition", MANIFEST, _FORMAT, VERSION, (MANIFEST, OWNER).__contains__)
_AGAIN = "make it again with 'siafu partition --overwrite'"
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "method": lambda value: isinstance(value, str),
    "parts": lambda value: is_count(value) and 1 <= value < 2**31,
    "seed": lambda value: type(value) is int,
    "graph": lambda value: isinstance(value, str),
    "crc32": is_count,
}


def partition_path(store: Path, method: str, parts: int, seed: int) -> Path:
    """Where a store keeps the partition that `method` makes of it."""
    return store / "partitions" / f"{method}-{parts}-{seed}"


def save_partition(
    store: Path, partition: Partition, graph_fingerprint: str, *, overwrite: bool = False
) -> Path:
    """Add a partition to the store of the graph with this fingerprint; where it is now."""
    path = partition_path(store, partition.method, partition.parts, partition.seed)
    owner = np.ascontiguousarray(partition.owner)
    manifest = {
        "format": _FORMAT,
        "version": VERSION,
        "method": partition.method,
        "parts": partition.parts,
        "seed": partition.seed,
        "graph": graph_fingerprint,
        "crc32": _checksum(owner),
    }
    directory = NewDirectory(path, kind=PARTITION, overwrite=overwrite)
    try:
        with disk_errors(path):
            file = directory.open(OWNER)
            file.write(npy_header(owner.dtype, owner.shape))
            file.write(owner.data)
            directory.open(MANIFEST).write(sealed(manifest))
        directory.publish()
    finally:
        directory.discard()
    return path


def read_partition(path: Path, graph: Graph, graph_fingerprint: str | None = None) -> Partition:
    """The partition at `path`, if it is whole and of this very graph.

    graph_fingerprint: where it is known already; None: it is taken, which reads the graph once
    """
    recover(path, PARTITION)
    manifest = _read_manifest(path)
    if manifest["graph"] != (graph_fingerprint or fingerprint(graph)):
        raise StoreError(f"{path} is a partition of another graph than {graph.name}: {_AGAIN}")
    parts = manifest["parts"]
    owner = _read_owner(path / OWNER, parts, graph.num_vertices)
    if _checksum(owner) != manifest["crc32"]:
        raise StoreError(f"{path / OWNER} is corrupted: its checksum is wrong; {_AGAIN}")
    if len(owner) and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        vertex = int(np.argmax((owner < 0) | (owner >= parts)))
        raise StoreError(
            f"{path / OWNER} gives vertex {vertex} to server {owner[vertex]} of {parts}, which is not one: {_AGAIN}"
        )
    return Partition(manifest["method"], parts, owner, manifest["seed"])


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        regular_size(path / MANIFEST)
        manifest = parse_json((path / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(
            f"no partition at {path}: make one with 'siafu partition', or give the directory of one"
        ) from error
    except OSError as error:
        raise StoreError(f"{path / MANIFEST} cannot be read ({error.strerror}): {_anew(path)}") from error
    except ValueError as error:
        raise StoreError(f"{path / MANIFEST} is not readable JSON ({error}): {_anew(path)}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise StoreError(f"{path / MANIFEST} does not describe a siafu partition: {_anew(path)}")
    version = manifest.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise StoreError(
            f"{path} is a partition of version {one_line(version)}, this siafu reads up to {VERSION}: upgrade with pip install -U siafu"
        )
    for field, fits in _FIELDS.items():
        if not fits(manifest.get(field)):
            raise StoreError(f"{path / MANIFEST} lacks or misnames {field!r}: {_AGAIN}")
    if not is_intact(manifest):
        raise StoreError(f"{path / MANIFEST} is corrupted: its checksum is wrong; {_AGAIN}")
    return manifest


def _anew(path: Path) -> str:
    # What does not say that it is a partition is not overwritten.
    return f"delete {path} and make it again with 'siafu partition'"


def _read_owner(file: Path, parts: int, num_vertices: int) -> Owners:
    dtype = np.dtype(owner_dtype(parts))
    # Compared, never parsed: a damaged header can do no harm.
    expected = npy_header(dtype, (num_vertices,))
    size = len(expected) + num_vertices * dtype.itemsize
    try:
        found = regular_size(file)
        with file.open("rb") as opened:
            header = opened.read(len(expected))
    except FileNotFoundError as error:
        raise StoreError(f"{file} is missing: the store was not copied whole; {_AGAIN}") from error
    except OSError as error:
        raise StoreError(f"{file} cannot be read ({error.strerror}): {_AGAIN}") from error
    if found != size:
        raise StoreError(
            f"{file} has {found} bytes instead of {size} for {num_vertices:,} vertices: it is truncated or not this graph's; {_AGAIN}"
        )
    if header != expected:
        raise StoreError(f"{file} is corrupted: its header is not that of {num_vertices:,} owners; {_AGAIN}")
    return np.fromfile(file, dtype, offset=len(expected))


def _checksum(owner: Owners) -> int:
    return zlib.crc32(np.ascontiguousarray(owner).view(np.uint8).data)

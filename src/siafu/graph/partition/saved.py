"""Partitions in a store, beside the graph they belong to.

    STORE/partitions/<method>-<parts>-<seed>/partition.json    version, method, parts, seed, the graph's fingerprint
    STORE/partitions/<method>-<parts>-<seed>/owner.npy         the owner of each vertex

One is written under another name and renamed, so that it is whole or absent; the store's own files never change.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from siafu.base.errors import StoreError
from siafu.base.storage.files import disk_errors
from siafu.base.storage.new_directory import DirectoryKind, NewDirectory, recover
from siafu.graph.graph import Graph
from siafu.graph.partition.partition import Owners, Partition, owner_dtype
from siafu.graph.stores.content import is_count
from siafu.graph.stores.fingerprint import fingerprint
from siafu.graph.stores.manifest import ManifestForm, reading, sealed
from siafu.graph.stores.store import HEADER, check_array_file, npy_header

VERSION = 1
MANIFEST = "partition.json"
OWNER = "owner.npy"

_FORMAT = "siafu partition"
PARTITION = DirectoryKind("partition", MANIFEST, _FORMAT, VERSION, (MANIFEST, OWNER).__contains__)
_MANIFEST_FORM = ManifestForm(
    PARTITION,
    {
        "method": lambda value: isinstance(value, str),
        "parts": lambda value: is_count(value) and 1 <= value < 2**31,
        "seed": lambda value: type(value) is int,
        "graph": lambda value: isinstance(value, str),
        "crc32": is_count,
    },
    again="make it again with 'siafu partition --overwrite'",
    # What does not say that it is a partition is not overwritten.
    anew="delete {where} and make it again with 'siafu partition'",
)
_AGAIN = _MANIFEST_FORM.again


def partition_path(store: Path, method: str, parts: int, seed: int) -> Path:
    """Path of a partition in a store."""
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
    header = npy_header(owner.dtype, owner.shape)
    write_partition(path, {OWNER: [header, owner.data], MANIFEST: [sealed(manifest)]}, overwrite=overwrite)
    return path


def write_partition(path: Path, files: dict[str, list[Any]], *, overwrite: bool) -> None:
    """Write the files of a partition, each of some parts; it appears whole."""
    with NewDirectory(path, kind=PARTITION, overwrite=overwrite) as directory:
        with disk_errors(path):
            for name, data in files.items():
                directory.open(name).writelines(data)
        directory.publish()


def read_partition(path: Path, graph: Graph, graph_fingerprint: str | None = None) -> Partition:
    """The partition at `path`, if it is whole and of this very graph.

    graph_fingerprint: where it is known already; None: it is taken, which reads the graph once
    """
    recover(path, PARTITION)
    absent = f"no partition at {path}: make one with 'siafu partition', or give the directory of one"
    manifest = _MANIFEST_FORM.read(path, absent)
    if manifest["graph"] != (graph_fingerprint or fingerprint(graph)):
        raise StoreError(f"{path} is a partition of another graph than {graph.name}: {_AGAIN}")
    parts = manifest["parts"]
    dtype = np.dtype(owner_dtype(parts))
    with reading(path / OWNER, _AGAIN):
        check_array_file(path / OWNER, dtype, (graph.num_vertices,), _AGAIN)
        owner = np.fromfile(path / OWNER, dtype, offset=HEADER)
    if _checksum(owner) != manifest["crc32"]:
        raise StoreError(f"{path / OWNER} is corrupted: its checksum is wrong; {_AGAIN}")
    if len(owner) and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        vertex = int(np.argmax((owner < 0) | (owner >= parts)))
        raise StoreError(
            f"{path / OWNER} gives vertex {vertex} to server {owner[vertex]} of {parts}, which is not one: {_AGAIN}"
        )
    return Partition(manifest["method"], parts, owner, manifest["seed"])


def _checksum(owner: Owners) -> int:
    return zlib.crc32(np.ascontiguousarray(owner).view(np.uint8).data)

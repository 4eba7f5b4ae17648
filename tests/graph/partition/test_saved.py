"""Saved partitions: whole, of the right graph, or refused."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siafu import Graph
from siafu.base.errors import BadInput, StoreError
from siafu.graph import read_store, write_store
from siafu.graph.partition import Partition, make_partition, partition_path, read_partition, save_partition
from siafu.graph.stores.fingerprint import fingerprint
from siafu.graph.stores.manifest import sealed
from tests.toys import toy_graph


@pytest.fixture
def graph() -> Graph:
    return toy_graph()


@pytest.fixture
def store(graph: Graph, tmp_path: Path) -> Path:
    path = tmp_path / "toy.store"
    graph.save(path)
    return path


@pytest.fixture
def saved(graph: Graph, store: Path) -> Path:
    return save_partition(store, make_partition(graph, 3, method="hash", seed=4), fingerprint(graph))


def change(path: Path, **fields: Any) -> None:
    manifest = json.loads((path / "partition.json").read_text())
    (path / "partition.json").write_bytes(sealed(manifest | fields))


def test_what_was_saved_is_read(graph: Graph, store: Path, saved: Path) -> None:
    assert saved == partition_path(store, "hash", 3, 4) == store / "partitions" / "hash-3-4"
    made, again = make_partition(graph, 3, method="hash", seed=4), read_partition(saved, graph)
    np.testing.assert_array_equal(again.owner, made.owner)
    assert again.owner.dtype == np.uint16
    assert (again.method, again.parts, again.seed) == ("hash", 3, 4)
    np.testing.assert_array_equal(np.load(saved / "owner.npy", allow_pickle=False), made.owner)


def test_the_store_is_as_it_was(graph: Graph, store: Path) -> None:
    before = {file.name: file.read_bytes() for file in store.iterdir()}
    save_partition(store, make_partition(graph, 3, method="hash"), fingerprint(graph))
    assert {file.name: file.read_bytes() for file in store.iterdir() if file.is_file()} == before
    assert fingerprint(read_store(store)) == fingerprint(graph)


def test_a_partition_is_not_replaced_unasked(graph: Graph, store: Path, saved: Path) -> None:
    other = Partition("hash", 3, np.zeros(graph.num_vertices, np.uint16), 4)
    with pytest.raises(BadInput, match="exists already"):
        save_partition(store, other, fingerprint(graph))
    assert read_partition(saved, graph).owner.any()
    save_partition(store, other, fingerprint(graph), overwrite=True)
    assert not read_partition(saved, graph).owner.any()


def test_what_is_no_partition_is_never_overwritten(graph: Graph, store: Path, saved: Path) -> None:
    (saved / "partition.json").rename(saved / "thesis.txt")
    with pytest.raises(BadInput, match="is not a partition, so it is not overwritten"):
        save_partition(
            store, make_partition(graph, 3, method="hash", seed=4), fingerprint(graph), overwrite=True
        )
    assert (saved / "thesis.txt").exists()


def test_a_store_is_overwritten_together_with_its_partitions(graph: Graph, store: Path, saved: Path) -> None:
    write_store(graph, store, overwrite=True)
    assert not saved.exists()


def test_a_partition_that_a_killed_overwrite_moved_aside_is_found(graph: Graph, saved: Path) -> None:
    saved.rename(saved.with_name(f".{saved.name}.replaced"))
    assert read_partition(saved, graph).num_vertices == graph.num_vertices


def test_a_partition_that_cannot_be_written_leaves_nothing(
    graph: Graph, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BadInput, match="no space left on the disk"):
        save_partition(store, make_partition(graph, 3, method="hash"), fingerprint(graph))
    assert list((store / "partitions").iterdir()) == []


def test_a_partition_of_another_graph_is_refused(saved: Path) -> None:
    with pytest.raises(StoreError, match="is a partition of another graph than toy: make it again"):
        read_partition(saved, toy_graph(seed=1))


def test_no_partition_is_refused(graph: Graph, store: Path) -> None:
    with pytest.raises(StoreError, match=r"no partition at .*: make one with 'siafu partition'"):
        read_partition(partition_path(store, "metis", 3, 0), graph)


def test_a_newer_version_is_refused(graph: Graph, saved: Path) -> None:
    change(saved, version=2)
    with pytest.raises(StoreError, match="version 2, this siafu reads up to 1: upgrade"):
        read_partition(saved, graph)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "siafu graph"}', "\xff"])
def test_a_manifest_of_something_else_is_refused(graph: Graph, saved: Path, text: str) -> None:
    (saved / "partition.json").write_text(text, encoding="latin1")
    with pytest.raises(StoreError, match=r"partition\.json (is not readable|does not describe)"):
        read_partition(saved, graph)


@pytest.mark.parametrize("field", ["method", "parts", "seed", "graph", "crc32"])
def test_a_manifest_that_lacks_a_field_is_refused(graph: Graph, saved: Path, field: str) -> None:
    change(saved, **{field: None})
    with pytest.raises(StoreError, match=rf"lacks or misnames a field \('{field}'\)"):
        read_partition(saved, graph)


@pytest.mark.parametrize("fields", [{"method": "metis"}, {"seed": 5}, {"parts": 4}])
def test_a_manifest_that_says_other_than_what_was_written_is_refused(
    graph: Graph, saved: Path, fields: dict[str, Any]
) -> None:
    manifest = json.loads((saved / "partition.json").read_text())
    (saved / "partition.json").write_text(json.dumps(manifest | fields))
    with pytest.raises(StoreError, match=r"partition\.json is corrupted: its checksum is wrong"):
        read_partition(saved, graph)


def test_a_manifest_that_is_nested_too_deeply_is_refused(graph: Graph, saved: Path) -> None:
    (saved / "partition.json").write_text("[" * 20_000)
    with pytest.raises(StoreError, match=r"partition\.json is not readable JSON"):
        read_partition(saved, graph)


def test_a_pipe_in_place_of_a_manifest_is_refused(graph: Graph, saved: Path) -> None:
    (saved / "partition.json").unlink()
    os.mkfifo(saved / "partition.json")
    with pytest.raises(StoreError, match="is not a file"):
        read_partition(saved, graph)


def test_a_missing_owner_file_is_refused(graph: Graph, saved: Path) -> None:
    (saved / "owner.npy").unlink()
    with pytest.raises(StoreError, match=r"owner\.npy is missing"):
        read_partition(saved, graph)


@pytest.mark.parametrize("length", [0, 50, 300])
def test_a_truncated_owner_file_is_refused(graph: Graph, saved: Path, length: int) -> None:
    os.truncate(saved / "owner.npy", length)
    with pytest.raises(
        StoreError, match=rf"owner\.npy has {length} bytes instead of 548 for 210 rows: it is truncated"
    ):
        read_partition(saved, graph)


@pytest.mark.slow
def test_any_flipped_bit_is_refused(graph: Graph, saved: Path) -> None:
    data, mark = (saved / "owner.npy").read_bytes(), fingerprint(graph)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        (saved / "owner.npy").write_bytes(changed)
        with pytest.raises(StoreError, match="is corrupted"):
            read_partition(saved, graph, mark)


@pytest.mark.parametrize(
    "owner",
    [
        np.zeros(209, np.uint16),
        np.zeros(210, np.int64),
        np.zeros((210, 1), np.uint16),
        np.zeros(210, np.int16),
    ],
)
def test_owners_of_the_wrong_length_or_type_are_refused(graph: Graph, saved: Path, owner: np.ndarray) -> None:
    np.save(saved / "owner.npy", owner)
    with pytest.raises(StoreError, match=r"instead of 548 for 210 rows|its header is not that"):
        read_partition(saved, graph)


def test_an_owner_that_does_not_exist_is_refused(graph: Graph, store: Path) -> None:
    owner = np.zeros(graph.num_vertices, np.uint16)
    owner[7] = 3
    path = save_partition(store, Partition("hash", 3, owner), fingerprint(graph))
    with pytest.raises(StoreError, match="gives vertex 7 to server 3 of 3"):
        read_partition(path, graph)

"""Damaged stores, and partitions in them: refused in one line, or the very graph and partition that were written."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import Partition, make_partition, partition_path, read_partition, save_partition
from siafu.graph.stores.fingerprint import fingerprint

from .damage import Damage, byte_damage, json_damage
from .guard import bytes_in, outcome, seeds

pytestmark = pytest.mark.slow

ARRAYS = ("indptr", "indices", "edge_weight", "x", "y", "train", "val", "test", "ids")
PARTITION = Path("partitions/hash-3-4")
JSON = (Path("graph.json"), PARTITION / "partition.json")
FILES = (*(Path(f"{name}.npy") for name in ARRAYS), PARTITION / "owner.npy", *JSON)

Whole = tuple[Graph, Partition]


def some_graph() -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        rng.integers(0, 50, 300),
        rng.integers(0, 50, 300),
        num_vertices=50,
        edge_weight=rng.random(300),
        x=rng.standard_normal((50, 7)),
        y=rng.integers(0, 3, 50),
        train=range(20),
        val=range(20, 30),
        test=range(30, 50),
        ids=np.array([f"vertex {k}" for k in range(50)], dtype="S"),
        name="some",
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = some_graph()
    path = tmp_path_factory.mktemp("written") / "some.store"
    graph.save(path)
    save_partition(path, make_partition(graph, 3, method="hash", seed=4), fingerprint(graph))
    return path


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "some.store")


def read(store: Path) -> Whole:
    graph = siafu.load(store)
    return graph, read_partition(partition_path(store, "hash", 3, 4), graph)


def check(store: Path, written: Path) -> None:
    """Either a refusal, or what was written."""
    found = outcome(lambda: read(store), bytes_in(store))
    if isinstance(found, BadInput):
        assert "store" in str(found)
        return
    (graph, partition), (wanted, wanted_partition) = found, read(written)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(graph, name), getattr(wanted, name))
    assert (graph.name, graph.num_classes, graph.is_symmetric) == ("some", 3, False)
    np.testing.assert_array_equal(partition.owner, wanted_partition.owner)
    assert (partition.method, partition.parts, partition.seed) == ("hash", 3, 4)


def apply(damage: Damage, file: Path) -> None:
    file.write_bytes(damage(file.read_bytes()))


@pytest.mark.parametrize("seed", seeds(19))
@pytest.mark.parametrize("file", FILES, ids=str)
def test_damaged_bytes_are_never_read_as_another_graph(
    store: Path, written: Path, file: Path, seed: int
) -> None:
    apply(byte_damage(seed), store / file)
    check(store, written)


@pytest.mark.parametrize("seed", seeds(33))
@pytest.mark.parametrize("file", JSON, ids=str)
def test_damaged_manifests_are_never_read_as_another_graph(
    store: Path, written: Path, file: Path, seed: int
) -> None:
    apply(json_damage(seed), store / file)
    check(store, written)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_missing_file_is_refused(store: Path, file: Path) -> None:
    (store / file).unlink()
    assert isinstance(outcome(lambda: read(store), bytes_in(store)), BadInput)


@pytest.mark.parametrize("seed", seeds(30))
def test_files_in_each_others_places_are_refused(store: Path, written: Path, seed: int) -> None:
    one, other = (store / file for file in random.Random(seed).sample(FILES, 2))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    check(store, written)

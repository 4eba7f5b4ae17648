import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput, StoreError
from siafu.graph import Graph, read_store
from siafu.graph.stores.manifest import sealed
from siafu.graph.triples import Triples, read_triples
from tests.graph.triples.triple_imports import imported


@pytest.fixture
def store(tmp_path: Path) -> Path:
    source = tmp_path / "kg.tsv"
    source.write_text("".join(f"e{k % 7}\tr{k % 3}\te{k % 5}\n" for k in range(60)))
    imported(source)
    return shutil.move(tmp_path / "imported.store", tmp_path / "kg.store")


def test_a_graph_is_not_read_out_of_triples(store: Path) -> None:
    for read in (siafu.load, lambda path: read_store(Path(path))):
        with pytest.raises(StoreError, match=r"is a store of triples, not of a graph: .*siafu embed"):
            read(str(store))


def test_the_name_of_a_store_of_triples_alone_is_known_as_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    with pytest.raises(StoreError, match="is a store of triples"):
        siafu.load("kg.store")


def test_triples_are_not_read_out_of_a_graph(tmp_path: Path) -> None:
    Graph.from_edges([0], [1], num_vertices=2).save(tmp_path / "graph.store")
    with pytest.raises(StoreError, match="is the store of a graph"):
        read_triples(tmp_path / "graph.store")


def test_a_flipped_bit_is_found(store: Path) -> None:
    file = store / "train.npy"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"train\.npy is corrupted"):
        read_triples(store)


def test_a_file_that_is_cut_off_is_found_without_reading_it(store: Path) -> None:
    file = store / "train.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(StoreError, match="truncated"):
        read_triples(store, verify=False)


def test_a_forged_count_does_not_lead_out_of_a_table(store: Path) -> None:
    manifest = json.loads((store / "triples.json").read_bytes())
    del manifest["checksum"]
    manifest["num_entities"] = 3
    manifest["arrays"].pop("ids")
    (store / "triples.json").write_bytes(sealed(manifest))
    with pytest.raises(StoreError, match="has ids beyond 3 entities"):
        read_triples(store)


@pytest.mark.parametrize(
    "entry", [{"file": "../x.npy"}, {"shape": [60]}, {"dtype": "<f4"}, {"shape": [-1, 3]}]
)
def test_a_manifest_that_describes_no_triples_is_refused(store: Path, entry: dict[str, object]) -> None:
    manifest = json.loads((store / "triples.json").read_bytes())
    del manifest["checksum"]
    manifest["arrays"]["train"] |= entry
    (store / "triples.json").write_bytes(sealed(manifest))
    with pytest.raises(StoreError, match=r"not of the store|which no such array has|which is none"):
        read_triples(store)


def test_triples_come_out_of_arrays() -> None:
    triples = Triples.from_arrays([[0, 0, 1], [0, 0, 1], [2, 1, 0]], test=[[1, 0, 3]])
    assert (triples.num_entities, triples.num_relations, len(triples.train)) == (4, 2, 2)


@pytest.mark.parametrize("wrong", [[[0, 1]], [[0.5, 1, 2]], [[-1, 0, 0]], np.empty((0, 3), np.int64)])
def test_arrays_that_are_no_triples_are_refused(wrong: object) -> None:
    with pytest.raises(BadInput):
        Triples.from_arrays(wrong)  # type: ignore[arg-type]

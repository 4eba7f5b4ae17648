"""`siafu partition`: the estimate, the table, the JSON, and every way to be refused."""

import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest

from siafu import load
from siafu.base.storage.files import cache_directory
from siafu.graph import read_store
from siafu.graph.partition import measure, metis, read_partition
from siafu.training.placement import choose_partition
from tests.cli.command import Siafu


@pytest.fixture
def fresh(store: Path, tmp_path: Path) -> Path:
    """A store of one's own, without partitions."""
    return Path(shutil.copytree(store, tmp_path / "toy.store"))


def test_the_partition_is_in_the_store_and_as_good_as_reported(siafu: Siafu, fresh: Path) -> None:
    found = siafu("partition", fresh, parts=3, method="stream", json=True).json()
    graph = read_store(fresh)
    partition = read_partition(Path(found["path"]), graph)
    quality = measure(graph, partition)
    assert (found["method"], found["parts"], found["seed"]) == ("stream", 3, 0)
    assert found["cut_edges"] == quality.cut_edges
    assert found["balance"] == quality.balance
    assert [server["vertices"] for server in found["servers"]] == quality.vertices.tolist()
    assert [server["forward_ghosts"] for server in found["servers"]] == quality.forward_ghosts.tolist()
    assert all(server["memory_bytes"] > 0 for server in found["servers"])
    assert Path(found["path"]) == fresh / "partitions" / "stream-3-0"


def test_the_estimate_comes_first_and_the_table_has_a_line_a_server(siafu: Siafu, fresh: Path) -> None:
    ended = siafu("partition", fresh, parts=3, method="hash", widths="8,16,3")
    assert ended.code == 0
    assert ended.err.startswith("toy: 210 vertices,")
    assert "on 3 servers, widths 8-16-3: an even server needs at most about" in ended.err
    header, *rest = ended.out.splitlines()
    assert header.split()[:3] == ["server", "vertices", "in-edges"]
    assert [line.split()[0] for line in rest[:3]] == ["0", "1", "2"]
    assert rest[3].startswith("hash: ")
    assert "edges cut" in rest[3]
    assert rest[4] == f"saved as {fresh / 'partitions' / 'hash-3-0'}"


def test_wider_layers_are_estimated_to_need_more(siafu: Siafu, fresh: Path) -> None:
    narrow, wide = (
        siafu("partition", fresh, parts=2, method="hash", widths=widths, overwrite=True, json=True).json()
        for widths in ("8,16,3", "8,512,3")
    )
    assert wide["estimated_memory_bytes"] > narrow["estimated_memory_bytes"]
    assert narrow["widths"] == [8, 16, 3]


def test_widths_are_those_of_the_graph_unless_given(siafu: Siafu, fresh: Path) -> None:
    assert siafu("partition", fresh, parts=2, method="hash", json=True).json()["widths"] == [8, 64, 3]


def test_a_seed_gives_another_partition_beside_the_first(siafu: Siafu, fresh: Path) -> None:
    paths = [
        siafu("partition", fresh, parts=2, method="hash", seed=seed, json=True).json()["path"]
        for seed in (0, 1)
    ]
    graph = read_store(fresh)
    first, second = (read_partition(Path(path), graph).owner for path in paths)
    assert (first != second).any()


@pytest.mark.skipif(not metis.metis_installed(), reason="pymetis is not installed")
def test_auto_takes_metis_for_a_small_graph(siafu: Siafu, fresh: Path) -> None:
    assert siafu("partition", fresh, parts=2, json=True).json()["method"] == "metis"


def test_a_cached_dataset_is_found_by_name(
    siafu: Siafu, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))
    shutil.copytree(fresh, tmp_path / "cache" / "datasets" / "toy")
    found = siafu("partition", "toy", parts=2, method="hash", json=True).json()
    assert Path(found["path"]).is_relative_to(tmp_path / "cache")


def test_a_partition_that_is_there_is_kept_unless_overwritten(siafu: Siafu, fresh: Path) -> None:
    path = Path(siafu("partition", fresh, parts=2, method="hash", json=True).json()["path"])
    np.save(path / "owner.npy", np.zeros(3))
    assert "exists already" in siafu.refused("partition", fresh, parts=2, method="hash")
    assert siafu("partition", fresh, parts=2, method="hash", overwrite=True).code == 0
    assert read_partition(path, read_store(fresh)).num_vertices == 210


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 0}, "parts"),
        ({"parts": 211}, "has 210 vertices and cannot have 211 parts"),
        ({}, "parts"),
        ({"parts": 2, "method": "metric"}, "no partition method 'metric'"),
        ({"parts": 2, "seed": -1}, "seed"),
        ({"parts": 2, "widths": "8"}, "--widths is '8'"),
        ({"parts": 2, "widths": "8,x,3"}, "--widths is '8,x,3'"),
        ({"parts": 2, "widths": "8,0,3"}, "--widths is '8,0,3'"),
    ],
)
def test_wrong_options_are_refused(
    siafu: Siafu, fresh: Path, options: dict[str, object], message: str
) -> None:
    assert message in siafu.refused("partition", fresh, **options)
    assert not (fresh / "partitions").exists()


def test_no_store_is_refused(siafu: Siafu, tmp_path: Path) -> None:
    assert "no store at" in siafu.refused("partition", tmp_path / "nowhere", parts=2)


def test_missing_metis_is_refused_with_the_command_to_install_it(
    siafu: Siafu, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metis, "find_spec", lambda name: None)
    assert "pip install 'siafu[partition]'" in siafu.refused("partition", fresh, parts=2, method="metis")


@pytest.mark.skipif(not metis.metis_installed(), reason="pymetis is not installed")
def test_a_graph_too_large_for_metis_is_refused(
    siafu: Siafu, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metis, "memory_for_metis", lambda: 1000)
    assert "choose --method stream" in siafu.refused("partition", fresh, parts=2, method="metis")


def test_a_store_at_an_address_gets_its_partition_there(
    siafu: Siafu, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").symlink_to(cache_directory() / "kernels")
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    try:
        files.put(str(store), "/partitioned/", recursive=True)
        address = f"memory://partitioned/{store.name}"
        assert siafu("partition", address, parts=2, method="hash", seed=5).code == 0
        assert files.exists(f"/partitioned/{store.name}/partitions/hash-2-5/partition.json")
        shutil.rmtree(tmp_path / "cache" / "stores")
        found = choose_partition(load(address), 2, "auto")
        assert (found.method, found.seed) == ("hash", 5)
        assert "exists already" in siafu.refused("partition", address, parts=2, method="hash", seed=5)
    finally:
        files.store.clear()

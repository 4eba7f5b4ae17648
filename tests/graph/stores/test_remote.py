"""Stores elsewhere: fetched whole, once, and never read wrongly."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput, StoreError
from siafu.base.storage.files import cache_directory
from siafu.graph import Graph, is_address, open_store, read_store
from siafu.graph.partition import make_partition, save_partition
from siafu.graph.stores import remote
from siafu.graph.stores.fingerprint import fingerprint
from siafu.graph.stores.manifest import sealed
from siafu.training.placement import choose_partition
from tests.toys import toy_graph

ADDRESS = "memory://bucket/toy"
_COMPILED = cache_directory() / "kernels"
ARRAYS = ("indptr", "indices", "x", "y", "train", "val", "test")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's own is seen or touched, but for compiled kernels, which are slow to make."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").symlink_to(_COMPILED)
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bucket() -> Iterator[Any]:
    """fsspec's file system in memory."""
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    toy_graph().save(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def there(bucket: Any, written: Path) -> Any:
    """The bucket with the store in it."""
    bucket.put(str(written), "/bucket/", recursive=True)
    assert bucket.exists("/bucket/toy/graph.json")
    return bucket


def same(one: Graph, other: Graph) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)


def cached(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "stores").glob("*") if path.name[0] != ".")


def flip(bucket: Any, path: str) -> None:
    data = bytearray(bucket.cat_file(path))
    data[-1] ^= 1
    bucket.pipe_file(path, bytes(data))


@pytest.mark.parametrize("text", ["s3://b/store", "memory://x", "file:///a/b", "simplecache::s3://b/store"])
def test_an_address_is_told_from_a_path(text: str) -> None:
    assert is_address(text)
    assert not is_address(Path(text))
    assert not is_address(text.replace("://", "/"))


def test_a_store_in_a_bucket_is_the_one_that_was_written(there: Any, written: Path) -> None:
    graph = siafu.load(ADDRESS)
    assert same(graph, read_store(written))
    assert graph.source == ADDRESS
    assert graph.is_symmetric


def test_it_is_mapped_from_the_cache_and_fetched_once(
    there: Any, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    siafu.load(ADDRESS)
    assert [path.name for path in cached(empty_cache)[0].glob("x.npy")] == ["x.npy"]
    read = []
    cat_file = type(there).cat_file
    monkeypatch.setattr(
        type(there), "cat_file", lambda self, path, **span: read.append(path) or cat_file(self, path, **span)
    )
    siafu.load(f"{ADDRESS}/")
    assert read == ["/bucket/toy/graph.json"]


def test_a_store_that_changes_is_fetched_anew(there: Any, tmp_path: Path, empty_cache: Path) -> None:
    siafu.load(ADDRESS)
    toy_graph(seed=1).save(tmp_path / "other" / "toy")
    there.put(str(tmp_path / "other" / "toy"), "/bucket/", recursive=True)
    assert same(siafu.load(ADDRESS), toy_graph(seed=1))
    assert len(cached(empty_cache)) == 2


def test_an_array_of_many_blocks_is_put_together(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (remote, siafu.graph.stores.store):
        monkeypatch.setattr(module, "BLOCK", 1000)
    toy_graph().save(tmp_path / "toy")
    bucket.put(str(tmp_path / "toy"), "/bucket/", recursive=True)
    assert same(siafu.load(ADDRESS), toy_graph())


def test_a_store_behind_another_file_system_is_fetched(written: Path, tmp_path: Path) -> None:
    assert same(open_store(f"simplecache::file://{written}"), toy_graph())


def test_a_store_on_this_machine_is_mapped_where_it_is(written: Path, empty_cache: Path) -> None:
    assert same(siafu.load(f"file://{written}"), toy_graph())
    assert cached(empty_cache) == []


def test_a_path_opens_too(written: Path) -> None:
    graph = open_store(str(written))
    assert same(graph, toy_graph())
    assert graph.source == str(written)


@pytest.mark.parametrize("name", ARRAYS)
def test_one_flipped_bit_is_found_and_nothing_is_left(there: Any, empty_cache: Path, name: str) -> None:
    flip(there, f"/bucket/toy/{name}.npy")
    with pytest.raises(StoreError, match=rf"bucket/toy/{name}\.npy is corrupted: the checksum"):
        open_store(ADDRESS)
    assert cached(empty_cache) == []


def test_a_truncated_array_is_refused_before_it_is_fetched(there: Any) -> None:
    there.pipe_file("/bucket/toy/x.npy", there.cat_file("/bucket/toy/x.npy")[:-4])
    with pytest.raises(StoreError, match=r"x\.npy has \d+ bytes instead of \d+: it is truncated"):
        open_store(ADDRESS)


def test_a_header_that_is_not_the_manifests_is_refused(there: Any) -> None:
    data = there.cat_file("/bucket/toy/y.npy")
    there.pipe_file("/bucket/toy/y.npy", data.replace(b"<i8", b"<u8", 1))
    with pytest.raises(StoreError, match=r"y\.npy is corrupted: its header"):
        open_store(ADDRESS)


def test_a_missing_array_is_refused(there: Any, empty_cache: Path) -> None:
    there.rm("/bucket/toy/indices.npy")
    with pytest.raises(StoreError, match=r"no store at memory://bucket/toy \(indices\.npy is not there\)"):
        open_store(ADDRESS)
    assert cached(empty_cache) == []


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ("{", "is not readable JSON"),
        ("[]", "does not describe a siafu graph"),
        ('{"format": "siafu graph", "version": 99}', "version 99"),
        ('{"format": "siafu graph", "version": 1}', "lacks or misnames a field"),
    ],
)
def test_a_manifest_that_is_none_is_refused(there: Any, manifest: str, why: str) -> None:
    there.pipe_file("/bucket/toy/graph.json", manifest.encode())
    with pytest.raises(StoreError, match=why):
        open_store(ADDRESS)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../elsewhere.npy"},
        {"file": None},
        {"shape": "many"},
        {"crc32": []},
        {"dtype": "|O"},
    ],
)
def test_a_forged_entry_is_refused(there: Any, empty_cache: Path, change: dict[str, Any]) -> None:
    manifest = json.loads(there.cat_file("/bucket/toy/graph.json"))
    manifest["arrays"]["x"] |= change
    there.pipe_file("/bucket/toy/graph.json", sealed(manifest))
    with pytest.raises(StoreError):
        open_store(ADDRESS)
    assert cached(empty_cache) == []


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("memory://bucket/nothing", r"no store at memory://bucket/nothing \(graph\.json is not there\)"),
        ("nonsense://bucket/store", r"nonsense://bucket/store cannot be opened .*nonsense"),
        ("file:///no/such/store", r"no store at /no/such/store"),
    ],
)
def test_a_wrong_address_is_one_clear_line(bucket: Any, address: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as told:
        siafu.load(address)
    assert "\n" not in str(told.value)


def test_what_a_file_system_complains_of_is_told(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise PermissionError("Access\nDenied")

    monkeypatch.setattr(type(there), "cat_file", forbidden)
    with pytest.raises(BadInput, match=r"graph\.json cannot be read \(Access Denied\): check the address"):
        open_store(ADDRESS)


def test_servers_that_start_together_fetch_a_store_once(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    fetch = remote._fetch
    monkeypatch.setattr(remote, "_fetch", lambda *given: fetched.append(1) or fetch(*given))
    threads = [threading.Thread(target=open_store, args=(ADDRESS,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1


def test_partitions_are_those_that_are_there_now(there: Any, written: Path) -> None:
    graph = siafu.load(ADDRESS)
    assert choose_partition(graph, 2, "auto").method in ("metis", "stream")

    partition = make_partition(graph, 2, method="hash", seed=7)
    save_partition(written, partition, fingerprint(graph))
    there.put(str(written / "partitions"), "/bucket/toy/", recursive=True)
    found = choose_partition(graph, 2, "auto")
    assert (found.method, found.seed) == ("hash", 7)
    np.testing.assert_array_equal(found.owner, partition.owner)

    there.rm("/bucket/toy/partitions", recursive=True)
    shutil.rmtree(written / "partitions")
    assert choose_partition(graph, 2, "auto").method != "hash"


@pytest.mark.slow
def test_training_on_a_store_in_a_bucket_is_training_on_it_here(there: Any, written: Path) -> None:
    losses = []
    for source in (ADDRESS, str(written)):
        graph = siafu.load(source)
        torch.manual_seed(0)
        model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
        run = siafu.train(graph, model, epochs=3, seed=0)
        losses.append([epoch.train_loss for epoch in run.history])
    assert losses[0] == losses[1]

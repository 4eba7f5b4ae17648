"""Stores: whole or absent, and never read wrongly."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from siafu.base.errors import BadInput, NoSpace, StoreError
from siafu.base.storage import files, new_directory
from siafu.base.storage.new_directory import NewDirectory
from siafu.graph import Graph, StoreWriter, read_store, write_store
from siafu.graph.stores import store
from siafu.graph.stores.manifest import sealed


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


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "some.store"
    write_store(some_graph(), path)
    return path


ARRAYS = ("indptr", "indices", "edge_weight", "x", "y", "train", "val", "test", "ids")


def test_what_was_written_is_read(saved: Path) -> None:
    graph, again = some_graph(), read_store(saved)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))
        assert getattr(again, name).dtype == getattr(graph, name).dtype
    assert (again.name, again.num_classes, again.is_symmetric) == ("some", 3, False)


def test_arrays_are_plain_npy_files_aligned_to_cache_lines(saved: Path) -> None:
    for name in ARRAYS:
        mapped = np.load(saved / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        assert mapped.offset % 64 == 0
        np.testing.assert_array_equal(mapped, getattr(some_graph(), name))


def test_a_loaded_graph_is_mapped_and_writing_to_it_changes_no_file(saved: Path) -> None:
    graph = read_store(saved)
    before = (saved / "x.npy").read_bytes()
    graph.x[0, 0] = 99
    assert (saved / "x.npy").read_bytes() == before


def test_a_graph_without_edges_or_data_is_stored(tmp_path: Path) -> None:
    write_store(Graph.from_edges([], [], num_vertices=3), tmp_path / "s")
    assert read_store(tmp_path / "s").num_vertices == 3


def test_a_truncated_array_is_refused(saved: Path) -> None:
    os.truncate(saved / "x.npy", 500)
    with pytest.raises(
        StoreError, match=r"x\.npy has 500 bytes instead of 1528 for .* rows: it is truncated"
    ):
        read_store(saved)


@pytest.mark.parametrize("name", ARRAYS)
def test_one_flipped_bit_is_found(saved: Path, name: str) -> None:
    file = saved / f"{name}.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=f"{name}.npy is corrupted: the checksum"):
        read_store(saved)


def test_a_changed_header_is_found_even_without_checksums(saved: Path) -> None:
    file = saved / "y.npy"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"y\.npy is corrupted: its header"):
        read_store(saved, verify=False)


def test_checksums_cover_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BLOCK", 256)
    path = tmp_path / "s"
    write_store(some_graph(), path)
    read_store(path)
    file = path / "x.npy"
    data = bytearray(file.read_bytes())
    data[128 + 600] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match="block 2 is wrong"):
        read_store(path)


def test_a_missing_array_is_refused(saved: Path) -> None:
    (saved / "indices.npy").unlink()
    with pytest.raises(StoreError, match=r"indices\.npy is missing"):
        read_store(saved)


def _edit(saved: Path, **changes: object) -> None:
    manifest = json.loads((saved / "graph.json").read_text())
    (saved / "graph.json").write_bytes(sealed(manifest | changes))


def test_a_newer_version_is_refused_with_the_way_out(saved: Path) -> None:
    _edit(saved, version=3)
    with pytest.raises(StoreError, match=r"version 3, this siafu reads up to 2: upgrade"):
        read_store(saved)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"format": "other"}, "does not describe a siafu graph"),
        ({"num_edges": 7}, "counts other vertices or edges"),
        ({"arrays": {"indptr": {}}}, "lacks or misnames a field"),
        ({"arrays": {"indptr": {"file": "../x.npy", "dtype": "<i8", "shape": [1]}}}, "outside of the store"),
        ({"version": "1"}, "version 1"),
    ],
)
def test_a_wrong_manifest_is_refused(saved: Path, change: dict[str, object], message: str) -> None:
    _edit(saved, **change)
    with pytest.raises(StoreError, match=message) as caught:
        read_store(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"num_classes": 4}, {"symmetric": True}, {"arrays": {}}, {"extra": 1}]
)
def test_a_manifest_that_says_other_than_what_was_written_is_refused(
    saved: Path, change: dict[str, object]
) -> None:
    manifest = json.loads((saved / "graph.json").read_text())
    (saved / "graph.json").write_text(json.dumps(manifest | change))
    with pytest.raises(StoreError, match=r"graph\.json is corrupted: its checksum is wrong") as caught:
        read_store(saved, verify=False)
    assert "\n" not in str(caught.value)


def test_a_store_whose_manifest_has_no_checksum_is_read_as_before(saved: Path) -> None:
    manifest = json.loads((saved / "graph.json").read_text())
    del manifest["checksum"]
    (saved / "graph.json").write_text(json.dumps(manifest))
    assert read_store(saved).name == "some"


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        read_store(tmp_path / "absent")
    with pytest.raises(StoreError, match=r"no store at .* \(graph\.json is not there\)"):
        read_store(tmp_path)
    (tmp_path / "graph.json").write_text("{")
    with pytest.raises(StoreError, match="not readable JSON"):
        read_store(tmp_path)


def test_an_existing_store_stays_unless_overwritten(saved: Path) -> None:
    with pytest.raises(BadInput, match="exists already"):
        write_store(some_graph(), saved)
    write_store(some_graph().replace(name="other"), saved, overwrite=True)
    assert read_store(saved).name == "other"
    assert [path.name for path in saved.parent.iterdir()] == ["some.store"]


def _what_writing_changes(path: Path) -> tuple[int, ...]:
    """Not the time of access: looking is allowed."""
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns


@pytest.mark.parametrize("what", ["directory", "file", "dangling link"])
def test_what_is_no_store_is_never_overwritten(tmp_path: Path, what: str) -> None:
    target = tmp_path / "mine"
    if what == "directory":
        target.mkdir()
        (target / "thesis.txt").write_text("years of work")
    elif what == "file":
        target.write_text("years of work")
    else:
        target.symlink_to(tmp_path / "nowhere")
    before = _what_writing_changes(target)
    with pytest.raises(BadInput, match="mine is not a store, so it is not overwritten"):
        write_store(some_graph(), target, overwrite=True)
    assert _what_writing_changes(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_graph_json_of_somebody_else_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text('{"nodes": []}')
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="is not a store, so it is not overwritten"):
        write_store(some_graph(), tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.json", "thesis.txt"]


def test_a_store_with_a_file_of_somebody_else_is_never_overwritten(saved: Path) -> None:
    (saved / "notes.txt").write_text("years of work")
    with pytest.raises(BadInput, match=r"holds notes.txt, which is not of the store"):
        write_store(some_graph(), saved, overwrite=True)
    assert (saved / "notes.txt").read_text() == "years of work"
    assert read_store(saved).name == "some"


def test_a_store_that_a_killed_overwrite_moved_aside_is_found(saved: Path) -> None:
    aside = saved.with_name(f".{saved.name}.replaced")
    saved.rename(aside)
    assert read_store(saved).name == "some"
    saved.rename(aside)
    assert store.is_store(saved)


def test_an_empty_directory_may_be_overwritten(tmp_path: Path) -> None:
    write_store(some_graph(), tmp_path, overwrite=True)
    assert read_store(tmp_path).name == "some"


def _writer(path: Path, *, overwrite: bool = False) -> StoreWriter:
    writer = StoreWriter(path, overwrite=overwrite)
    writer.array("indptr", np.int64).append(np.zeros(1, np.int64))
    writer.array("indices", np.int32)
    return writer


def _commit(writer: StoreWriter, name: str) -> None:
    with writer:
        writer.commit(name=name, num_classes=0, symmetric=True)


def test_of_two_writers_to_one_path_the_first_to_finish_wins(tmp_path: Path) -> None:
    first, second = _writer(tmp_path / "s"), _writer(tmp_path / "s")
    _commit(first, "first")
    with pytest.raises(BadInput, match="exists already"):
        _commit(second, "second")
    assert read_store(tmp_path / "s").name == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_place_taken_between_the_look_and_the_rename_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = _writer(saved.parent / "s")
    saved.rename(saved.parent / "s")
    there = iter([False])
    monkeypatch.setattr(os.path, "lexists", lambda path: next(there, True))
    with pytest.raises(BadInput, match="exists already"):
        _commit(writer, "late")
    assert read_store(saved.parent / "s").name == "some"


def test_what_became_something_else_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "s", overwrite=True)
    (tmp_path / "s").write_text("years of work")
    with pytest.raises(BadInput, match="not a store"):
        _commit(writer, "late")
    assert (tmp_path / "s").read_text() == "years of work"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file/s", "File exists|Not a directory"),
        ("a" * 300, "File name too long"),
        ("file/b/s", "Not a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=message) as caught:
        write_store(some_graph(), tmp_path / path)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match=message), files.replacing(tmp_path / path):
        pass


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), TimeoutError("timed out")])
def test_a_network_error_is_not_blamed_on_the_disk(tmp_path: Path, error: OSError) -> None:
    with pytest.raises(type(error)), files.replacing(tmp_path / "f"):
        raise error


@pytest.mark.parametrize("nameless", [True, False])
def test_a_writer_that_fails_leaves_nothing(
    tmp_path: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless:
        monkeypatch.setattr(new_directory, "anonymous_file", lambda directory: None)
    with pytest.raises(RuntimeError), StoreWriter(tmp_path / "s") as writer:
        writer.array("indptr", np.int64).append(np.zeros(1000, np.int64))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_systems_without_nameless_files_write_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_directory, "anonymous_file", lambda directory: None)
    write_store(some_graph(), tmp_path / "s")
    np.testing.assert_array_equal(read_store(tmp_path / "s").x, some_graph().x)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NewDirectory, "open", lambda self, name: open("/dev/full", "wb", buffering=0))  # noqa: SIM115, PTH123
    with pytest.raises(NoSpace, match="no space left on the disk") as caught:
        write_store(some_graph(), tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_rows_of_another_shape_are_a_mistake_of_ours(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s") as writer:
        array = writer.array("x", np.float32, (3,))
        with pytest.raises(ValueError, match="rows of shape"):
            array.append(np.zeros((2, 4), np.float32))
        with pytest.raises(ValueError, match="unknown, or was started"):
            writer.array("x", np.float32)


def test_replacing_a_file_keeps_the_old_one_until_the_new_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old")
    with pytest.raises(RuntimeError), files.replacing(file) as new:
        new.write(b"half")
        raise RuntimeError
    assert file.read_bytes() == b"old"
    with files.replacing(file) as new:
        new.write(b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]

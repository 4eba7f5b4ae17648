import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from siafu.base.errors import BadInput
from tests.graph.imports import edge_set, imported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "edges.parquet"


def test_integers_and_weights_are_read(source: Path) -> None:
    table = pa.table({"w": [0.5, 2.0, 3.0], "target": [1, 2, 0], "source": [0, 1, 2]})
    parquet.write_table(table, source, row_group_size=2)
    graph = imported(source, weight="w")
    assert edge_set(graph) == [(0, 1), (1, 2), (2, 0)]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [3.0, 0.5, 2.0]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_strings_of_every_kind_are_read(source: Path, kind: pa.DataType) -> None:
    ends = [["zoë", "a", "a"], ["a", "bc", "zoë"]]
    parquet.write_table(pa.table([pa.array(e).cast(kind) for e in ends], names=["src", "dst"]), source)
    graph = imported(source)
    assert graph.ids is not None
    assert [name.decode() for name in graph.ids] == ["zoë", "a", "bc"]
    assert graph.indices.tolist() == [1, 0, 1]


def test_a_folder_of_files_is_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "edges"
    folder.mkdir()
    for number, (src, dst) in enumerate([([0, 1], [1, 2]), ([2], [0])]):
        parquet.write_table(pa.table({"src": src, "dst": dst}), folder / f"{number}.parquet")
    assert edge_set(imported(folder)) == [(0, 1), (1, 2), (2, 0)]


def test_a_table_of_vertices_is_read(source: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"src": ["a", "b"], "dst": ["b", "c"]}), source)
    rows = {
        "id": ["c", "b", "a"],
        "label": [1, None, 0],
        "split": ["test", None, "train"],
        "f0": [1.0, 2.0, 3.0],
        "note": ["x", "y", "z"],
        "f1": [4, 5, 6],
    }
    parquet.write_table(pa.table(rows), tmp_path / "vertices.parquet")
    graph = imported(source, vertices=tmp_path / "vertices.parquet")
    assert graph.ids is not None and graph.y is not None and graph.x is not None
    assert graph.ids.tolist() == [b"a", b"b", b"c"]
    assert graph.x.tolist() == [[3, 6], [2, 5], [1, 4]]
    assert graph.y.tolist() == [0, -1, 1]
    assert graph.train is not None and graph.test is not None
    assert (graph.train.tolist(), graph.val, graph.test.tolist()) == ([0], None, [2])


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"src": [0, 9], "dst": [1, 1]}, {"num_vertices": 3}, "row 1: id 9 is out of range: with 3 vertices"),
        ({"src": [0.5], "dst": [1.5]}, {}, "column 'src' holds double: ids are whole numbers or strings"),
        ({"src": [0, None], "dst": [1, 1]}, {}, "column 'src': a row has no id"),
        ({"src": [0], "dst": [1], "weight": [np.nan]}, {}, "row 0: the weight is not a finite number"),
        ({"src": [0], "dst": [1]}, {"src": "nope"}, "has no column 'nope': it has src, dst"),
    ],
)
def test_bad_tables_are_refused(
    source: Path, table: dict[str, list[float]], options: dict[str, object], message: str
) -> None:
    parquet.write_table(pa.table(table), source)
    with pytest.raises(BadInput) as error:
        imported(source, **options)
    assert message in str(error.value)


def test_a_cut_off_file_is_refused(source: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    source.write_bytes(source.read_bytes()[:-10])
    with pytest.raises(BadInput, match="is not a Parquet file, or is cut off"):
        imported(source)


def test_without_pyarrow_the_error_says_how_to_get_it(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pip install 'siafu\[parquet\]'"):
        imported(source)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (pa.array(["b", "a\0"]), "column 'dst' has a name with a zero byte"),
        (pa.array([b"b", b"\xff"]), "column 'dst' has a name that is not UTF-8"),
    ],
)
def test_names_that_are_no_text_are_refused(source: Path, names: pa.Array, message: str) -> None:
    parquet.write_table(pa.table({"src": ["a", "b"], "dst": names}), source)
    with pytest.raises(BadInput, match=message):
        imported(source)


def test_labels_that_are_words_are_refused_with_what_to_do(source: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    vertices = tmp_path / "vertices.parquet"
    parquet.write_table(pa.table({"id": [0, 1], "label": ["cat", "dog"]}), vertices)
    with pytest.raises(BadInput, match="column 'label' holds no numbers: number the classes from 0 up"):
        imported(source, vertices=vertices)


def test_weights_that_are_words_are_refused(source: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1], "weight": ["heavy"]}), source)
    with pytest.raises(BadInput, match="column 'weight' holds no numbers"):
        imported(source)


def test_ids_that_are_too_large_are_refused(source: Path) -> None:
    ids = pa.array([2**63 + 5, 1], pa.uint64())
    parquet.write_table(pa.table({"src": ids, "dst": ids}), source)
    with pytest.raises(BadInput, match=r"column 'src' holds 9223372036854775813: ids go to 2\*\*63 - 1"):
        imported(source)

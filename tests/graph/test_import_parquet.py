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


def test_booleans_are_features_and_named_classes_in_parquet_and_in_text(source: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"src": [0, 1], "dst": [1, 2]}), source)
    rows = {"id": [0, 1, 2], "label": [True, None, False], "rich": [False, True, True]}
    parquet.write_table(pa.table(rows), tmp_path / "people.parquet")
    (tmp_path / "people.csv").write_text("id,label,rich\n0,True,False\n1,,True\n2,False,True\n")
    for name in ("people.parquet", "people.csv"):
        graph = imported(source, vertices=tmp_path / name)
        assert graph.y is not None and graph.x is not None
        assert (graph.class_names, graph.y.tolist()) == (("False", "True"), [1, -1, 0])
        assert graph.x.tolist() == [[0], [1], [1]]


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
        (
            {"src": [0, 9], "dst": [1, 1]},
            {"num_vertices": 3},
            "column 'src', entry 1: id 9 is out of range: with 3 vertices",
        ),
        ({"src": [0.5], "dst": [1.5]}, {}, "column 'src' holds double: ids are whole numbers or strings"),
        ({"src": [0, None], "dst": [1, 1]}, {}, "column 'src': a row has no id"),
        (
            {"src": [0], "dst": [1], "weight": [np.nan]},
            {},
            "column 'weight', entry 0: the weight is not a finite number",
        ),
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


def test_labels_that_are_words_are_classes(source: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    vertices = tmp_path / "vertices.parquet"
    parquet.write_table(pa.table({"id": [1, 0], "label": ["cat", "dog"]}), vertices)
    graph = imported(source, vertices=vertices)
    assert (graph.y.tolist(), graph.class_names) == ([1, 0], ("cat", "dog"))


def test_weights_that_are_words_are_refused(source: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1], "weight": ["heavy"]}), source)
    with pytest.raises(BadInput, match="column 'weight' holds no numbers"):
        imported(source)


def test_ids_that_are_too_large_are_refused(source: Path) -> None:
    ids = pa.array([2**63 + 5, 1], pa.uint64())
    parquet.write_table(pa.table({"src": ids, "dst": ids}), source)
    with pytest.raises(BadInput, match=r"column 'src' holds 9223372036854775813: ids go to 2\*\*63 - 1"):
        imported(source)


def refusal(source: Path, **options: object) -> str:
    with pytest.raises(BadInput) as caught:
        imported(source, **options)
    assert str(source) in str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


def plain_edges(source: Path, *, checksums: bool = False) -> bytearray:
    """Edges 1000 to 1001 and so on, each value as 8 bytes of the file."""
    table = pa.table({"src": range(1000, 1100), "dst": range(1001, 1101)})
    parquet.write_table(
        table, source, compression="none", use_dictionary=False, write_page_checksum=checksums
    )
    return bytearray(source.read_bytes())


def test_a_flipped_bit_under_a_checksum_is_refused_by_the_files_name(source: Path) -> None:
    data = plain_edges(source, checksums=True)
    data[data.index((1050).to_bytes(8, "little"))] ^= 1
    source.write_bytes(data)
    assert "is damaged" in refusal(source)


def test_a_value_beyond_the_files_own_statistics_is_refused(source: Path) -> None:
    data = plain_edges(source)
    at = data.index((1050).to_bytes(8, "little"))
    data[at : at + 8] = (2050).to_bytes(8, "little")
    source.write_bytes(data)
    assert "it holds 2050, where the file says that values go from 1000 to 1099" in refusal(source)


def test_a_name_beyond_the_files_own_statistics_is_refused(source: Path) -> None:
    table = pa.table({"src": ["bee", "ant"], "dst": ["ant", "cat"]})
    parquet.write_table(table, source, compression="none", use_dictionary=False)
    source.write_bytes(source.read_bytes().replace(b"\x03\x00\x00\x00bee", b"\x03\x00\x00\x00zee"))
    assert "column 'src' is damaged" in refusal(source)


def test_a_page_that_cannot_be_unpacked_is_refused_by_the_files_name(source: Path) -> None:
    parquet.write_table(pa.table({"src": range(1000), "dst": range(1000)}), source, compression="zstd")
    data = bytearray(source.read_bytes())
    data[200:400] = bytes(200)
    source.write_bytes(data)
    assert "is damaged" in refusal(source)


def test_a_folder_whose_files_have_other_columns_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "edges"
    folder.mkdir()
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), folder / "0.parquet")
    parquet.write_table(pa.table({"src": [0], "to": [1]}), folder / "1.parquet")
    assert "1.parquet, column 'dst' holds nothing, but int64 in" in refusal(folder)
    parquet.write_table(pa.table({"src": [0], "dst": ["1"]}), folder / "1.parquet")
    assert "1.parquet, column 'dst' holds string, but int64 in" in refusal(folder)


def test_a_link_out_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "edges"
    folder.mkdir()
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), tmp_path / "0.parquet")
    (folder / "0.parquet").symlink_to(tmp_path / "0.parquet")
    assert "outside of the folder" in refusal(folder)


def test_two_columns_of_one_name_are_refused(source: Path) -> None:
    parquet.write_table(pa.Table.from_arrays([pa.array([0]), pa.array([1])], names=["src", "src"]), source)
    assert "two columns of one name" in refusal(source)


def test_features_that_float32_rounds_are_taken(source: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    rows = {"id": [0, 1], "f": [2**60 + 1, 1]}
    parquet.write_table(pa.table(rows), tmp_path / "vertices.parquet")
    graph = imported(source, vertices=tmp_path / "vertices.parquet")
    assert graph.x is not None
    assert graph.x.tolist() == [[2.0**60], [1.0]]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, None])
def test_features_that_are_no_numbers_are_refused(source: Path, tmp_path: Path, value: float | None) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    vertices = tmp_path / "vertices.parquet"
    parquet.write_table(pa.table({"id": [0, 1], "f": [1.0, value]}), vertices)
    with pytest.raises(
        BadInput,
        match=r"vertices\.parquet, column .f., entry 1: the feature is not a finite number: fill it in",
    ):
        imported(source, vertices=vertices)


def test_a_misspelt_split_is_told_with_its_place(source: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"src": [0], "dst": [1]}), source)
    vertices = tmp_path / "vertices.parquet"
    parquet.write_table(pa.table({"id": [0, 1], "split": ["train", "trian"]}), vertices)
    with pytest.raises(BadInput, match=r"vertices\.parquet, entry 1, has the split 'trian'"):
        imported(source, vertices=vertices)

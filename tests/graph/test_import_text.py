import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.graph.importing.readers import parse, table_form
from siafu.graph.importing.readers.columns import EdgeColumns
from siafu.graph.importing.readers.text import TextEdges, TextTable
from tests.graph.imports import edge_set, imported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "edges.csv"


@pytest.mark.parametrize(
    "content",
    [
        "0,1\n1,2\n2,0\n",
        "0,1\r\n1,2\r\n2,0\r\n",
        "0,1\n1,2\n2,0",
        "0\t1\n1\t2\n2\t0\n",
        "0 1\n1   2\n  2 0  \n",
        "0;1\n1;2\n2;0\n",
        "src,dst\n0,1\n1,2\n2,0\n",
        "# a comment\n% another\n\n0,1\n   \n1,2\n# more\n2,0\n",
        "# SNAP\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t0\n",
        '"0","1"\n"1","2"\n"2","0"\n',
        "\ufeffsrc,dst\n0,1\n1,2\n2,0\n",
        "\ufeff0,1\n1,2\n2,0\n",
        "\ufeff0 1\n1 2\n2 0\n",
        "\ufeff# a comment\n0,1\n1,2\n2,0\n",
        "0,1\r\r\n1,2\r\n2,0\r",
        '"0" , "1" \n"1","2"\n"2","0"\r\n',
        "weird,words\n0,1\n1,2\n2,0\n",
        "0,1,x\n1,2,y\n2,0,z\n",
        "+0,1\n1,2\n2,0\n",
    ],
)
def test_a_table_of_text_is_read_however_it_is_written(source: Path, content: str) -> None:
    source.write_text(content)
    assert edge_set(imported(source)) == [(0, 1), (1, 2), (2, 0)]


def test_gzip_is_known_by_its_content_not_its_name(source: Path) -> None:
    source.write_bytes(gzip.compress(b"0,1\n1,0\n"))
    assert edge_set(imported(source)) == [(0, 1), (1, 0)]


def test_columns_are_found_by_their_well_known_names_in_any_order(source: Path) -> None:
    source.write_text("weight,target,kind,source\n0.5,0,a,1\n2,1,b,0\n")
    graph = imported(source)
    assert edge_set(graph) == [(0, 1), (1, 0)]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0.5, 2.0]


def test_columns_are_taken_by_name_or_by_position(source: Path) -> None:
    source.write_text("a,b,c\n0,1,5\n2,0,7\n")
    by_name = imported(source, src="b", dst="a", weight="c")
    by_position = imported(source, src="1", dst="0", weight="2")
    for graph in (by_name, by_position):
        assert edge_set(graph) == [(0, 2), (1, 0)]
        assert graph.edge_weight is not None
        assert graph.edge_weight.tolist() == [5.0, 7.0]


@pytest.mark.parametrize(
    "columns", [{"src": "0", "dst": "0"}, {"src": "target"}, {"weight": "1"}, {"dst": "2", "weight": "2"}]
)
def test_one_column_is_not_taken_for_two_things(source: Path, columns: dict[str, str]) -> None:
    source.write_text("source,target,x\n0,1,5\n1,0,6\n")
    with pytest.raises(BadInput, match="one column is given for two of source, destination and weight"):
        imported(source, **columns)


def test_a_well_known_weight_column_can_be_asked_for_as_an_end(source: Path) -> None:
    source.write_text("source,weight\n0,1\n1,0\n")
    graph = imported(source, dst="weight")
    assert edge_set(graph) == [(0, 1), (1, 0)]
    assert graph.edge_weight is None


def test_a_given_delimiter_and_header_overrule_the_looks(source: Path) -> None:
    source.write_text("1,5|2\n3,5|4\n")
    graph = imported(source, delimiter="|", header=False, ids="names")
    assert edge_set(graph) == [(b"1,5", b"2"), (b"3,5", b"4")]


def test_sparse_integers_are_numbered_in_ascending_order(source: Path) -> None:
    source.write_text("5000000000 7\n7 -3\n")
    graph = imported(source)
    assert graph.ids is not None
    assert graph.ids.tolist() == [-3, 7, 5000000000]
    assert edge_set(graph) == [(7, -3), (5000000000, 7)]


def test_dense_integers_are_used_as_they_are(source: Path) -> None:
    source.write_text("0 5\n1 3\n")
    graph = imported(source)
    assert graph.ids is None
    assert graph.num_vertices == 6


def test_the_kind_of_ids_can_be_chosen(source: Path) -> None:
    source.write_text("0 900\n900 3\n")
    assert imported(source, ids="dense").num_vertices == 901
    source.write_text("0 2\n2 0\n")
    assert imported(source, ids="relabel").num_vertices == 2
    names = imported(source, ids="names").ids
    assert names is not None
    assert names.tolist() == [b"0", b"2"]


def test_strings_are_numbered_as_they_first_appear(source: Path) -> None:
    source.write_text('zoë,"b, ""junior"""\n"b, ""junior""",a\na,zoë\n')
    graph = imported(source)
    assert graph.ids is not None
    assert [name.decode() for name in graph.ids] == ["zoë", 'b, "junior"', "a"]
    assert graph.indices.tolist() == [2, 0, 1]


_FIELDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=("Zs", "Cc", "Zl", "Zp")),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(pairs=st.lists(st.tuples(_FIELDS, _FIELDS), min_size=1, max_size=60))
@pytest.mark.slow
def test_names_are_read_as_pythons_csv_module_writes_them(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    source = tmp_path_factory.mktemp("csv") / "edges.csv"
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(pairs)
    source.write_text(written.getvalue(), encoding="utf-8", newline="")
    graph = imported(source, ids="names", header=False, delimiter=",")
    expected = sorted((a.encode(), b.encode()) for a, b in pairs)
    assert edge_set(graph) == expected
    order = list(dict.fromkeys(end.encode() for pair in pairs for end in pair))
    assert graph.ids is not None
    assert graph.ids.tolist() == order


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=50),
    block_bytes=st.integers(8, 200),
)
def test_weights_are_read_to_the_last_digit(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("weights") / "edges.txt"
    path.write_text("".join(f"{e} {e + 1} {value!r}\n" for e, value in enumerate(values)))
    table = TextTable(path, header=False, block_bytes=block_bytes)
    blocks = list(TextEdges(table, EdgeColumns(weight="2")).blocks(None))
    assert np.concatenate([block.src for block in blocks]).tolist() == list(range(len(values)))
    found = np.concatenate([block.weights for block in blocks])
    assert np.allclose(found, np.array(values, np.float32), rtol=1.2e-7, atol=1e-44)


def test_many_blocks_give_all_rows_once(source: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 10**6, (20_000, 2))
    np.savetxt(source, pairs, fmt="%d", delimiter="\t")
    blocks = list(TextEdges(TextTable(source, block_bytes=5000)).blocks(None))
    assert len(blocks) > 10
    found = np.stack([np.concatenate([block[end] for block in blocks]) for end in (0, 1)], axis=1)
    assert np.array_equal(found, pairs)
    assert blocks[-1].read == 1.0


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("0,1\n1,2\nx7,3\n", {}, "edges.csv, line 3: 'x7' in column 0 is not a whole number"),
        ("# note\nsrc,dst\n0,1\n1,\n", {}, "edges.csv, line 4: there is nothing in column 'dst'"),
        ("0,1\n\n1\n", {}, "edges.csv, line 3: there is nothing in column 1"),
        ("0 1\n1\n", {}, "edges.csv, line 2: there is nothing in column 1"),
        ("a,b\nc\n", {"header": False}, "edges.csv, line 2: there is nothing in column 1"),
        ("0,1,2\n1,2,nan\n", {"weight": "2"}, "edges.csv, line 2: 'nan' in column 2 is not a finite number"),
        ("0,1,2\n1,2,1e9x\n", {"weight": "2"}, "line 2: '1e9x' in column 2 is not a number"),
        ("0,1\n1,9\n", {"num_vertices": 5}, "line 2: id 9 in column 1 is out of range: with 5 vertices"),
        ("0,1\n1,-2\n", {"num_vertices": 5}, "line 2: id -2 in column 1 is out of range"),
        ("0,1\n1,99999999999999999999\n", {}, "line 2: 99999999999999999999 in column 1 is too large"),
        ("0,1\n1,9223372036854775808\n", {}, "line 2: 9223372036854775808 in column 1 is too large"),
        ("0,1\n1,99999999999999999999x\n", {}, "in column 1 is not a whole number"),
        ("0,1\r1,2\r2,0\r", {}, "line 1: a carriage return stands inside the line"),
        ("src,dst\r0,1\r1,2\r", {}, "line 1: a carriage return stands inside the line"),
        ("src,dst\n0,1\n# a\r1,2\r3,4\n", {}, "line 3: a carriage return stands inside the line"),
        ("0 1\n1\x002 3\n", {}, "line 2: '1\\x002' in column 0 is not a whole number"),
        ('1,2\n"1"23,4\n', {}, "line 2: '23' stands after the closing quote in column 0"),
        ('1 2\n3 "1"23\n', {}, "line 2: '23' stands after the closing quote in column 1"),
        ("a,b\nb,a\0\n", {"header": False}, "line 2: the name 'a\\x00' in column 1 is not UTF-8, or has"),
        ('a,b\n"c,d\n', {"header": False}, "line 2: a quote in column 0 is not closed"),
        ("src,dst\n0,1\n", {"src": "from"}, "edges.csv has no column 'from': it has src, dst"),
        ("0,1\n", {"dst": "7"}, "has no column '7': it has no header and 2 columns, counted from 0"),
        ("0\n1\n", {}, "edges.csv has 1 column: edges need a source and a destination"),
        ("0,1\n", {"delimiter": "::"}, "delimiter '::' is not one character"),
        ("0,1\n1,-2\n", {"ids": "dense"}, "id -2 is negative"),
        ("a,b\n", {"num_vertices": 7, "header": False}, "there are 2 ids, not 7"),
        ("x" * 2000 + ",b\n", {"header": False}, "is 2000 bytes long"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(
    source: Path, content: str, options: dict[str, object], message: str
) -> None:
    source.write_text(content)
    with pytest.raises(BadInput) as error:
        imported(source, **options)
    assert message in str(error.value)
    assert sorted(path.name for path in source.parent.iterdir()) == ["edges.csv"]


def test_a_name_that_is_not_utf8_is_refused_with_its_place(source: Path) -> None:
    source.write_bytes("# h\xe9\nsrc,dst\nzoë,b\n".encode() + "b,é\n".encode("latin-1") + b"\xff,b\n")
    with pytest.raises(BadInput, match="line 4: the name '�' in column 'dst' is not UTF-8"):
        imported(source)


def test_a_comment_need_not_be_utf8(source: Path) -> None:
    source.write_bytes("# é\n".encode("latin-1") + b"src,dst\na,b\n")
    assert edge_set(imported(source)) == [(b"a", b"b")]


def test_the_largest_ids_are_read(source: Path) -> None:
    source.write_text(
        "9223372036854775807 1000000000000000000\n-9223372036854775807 00000000000000000000007\n"
    )
    graph = imported(source)
    assert graph.ids is not None
    assert graph.ids.tolist() == [-(2**63) + 1, 7, 10**18, 2**63 - 1]


@pytest.mark.parametrize("zero", ["0e9999", "-0e9999", "0.0e99999999999999999999", "1e-99999999999999999999"])
def test_a_weight_may_be_zero_with_any_exponent(source: Path, zero: str) -> None:
    source.write_text(f"0,1,{zero}\n")
    graph = imported(source, weight="2")
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0.0]


def test_a_line_number_counts_all_blocks_before(source: Path) -> None:
    source.write_text("1 2\n" * 5000 + "1 zwei\n")
    with pytest.raises(BadInput, match="line 5001: 'zwei'"):
        list(TextEdges(TextTable(source, block_bytes=1000)).blocks(None))


def test_a_truncated_gzip_is_refused(source: Path) -> None:
    rng = np.random.default_rng(0)
    lines = "".join(f"{a} {b}\n" for a, b in rng.integers(0, 10**6, (50_000, 2)))
    source.write_bytes(gzip.compress(lines.encode())[:-2000])
    with pytest.raises(BadInput, match="cut off: its gzip data ends too early"):
        imported(source)


def test_a_damaged_gzip_is_refused(source: Path) -> None:
    packed = bytearray(gzip.compress(b"0,1\n" * 1000))
    packed[30:40] = b"0123456789"
    source.write_bytes(packed)
    with pytest.raises(BadInput, match="damaged"):
        imported(source)


def test_a_file_that_is_no_text_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siafu.graph.importing.readers.textfile._MOST_LINE_BYTES", 10_000)
    source.write_bytes(b"7 " * 50_000)
    with pytest.raises(BadInput, match="has a line of more than"):
        list(TextTable(source, block_bytes=1000).blocks(integers=[0]))


def test_a_file_without_edges_is_a_graph_without_edges(source: Path) -> None:
    source.write_text("src,dst\n")
    graph = imported(source, num_vertices=3)
    assert graph.num_vertices == 3
    assert graph.num_edges == 0


@pytest.mark.parametrize("ids", ["auto", "dense", "relabel", "names"])
@pytest.mark.parametrize("content", ["", "\n", "src,dst\n", "# only\n% comments\n"])
def test_a_file_without_edges_or_vertices_is_refused(source: Path, ids: str, content: str) -> None:
    source.write_text(content)
    with pytest.raises(BadInput, match=r"no edges in .*edges\.csv"):
        imported(source, ids=ids)
    assert [path.name for path in source.parent.iterdir()] == ["edges.csv"]


def test_a_table_of_vertices_makes_a_graph_without_edges(source: Path) -> None:
    source.write_text("src,dst\n")
    table = source.with_name("vertices.csv")
    table.write_text("id,x\n0,1\n1,2\n")
    graph = imported(source, vertices=table)
    assert (graph.num_vertices, graph.num_edges) == (2, 0)


def test_labels_that_are_words_are_classes_in_alphabetical_order(source: Path) -> None:
    source.write_text("0,1\n1,2\n2,3\n")
    table = source.with_name("vertices.csv")
    table.write_text("id,split,x,label\n0,train,1,dog\n1,,2,\n2,test,3,cat\n3,val,4,dog\n")
    graph = imported(source, vertices=table)
    assert (graph.num_classes, graph.class_names) == (2, ("cat", "dog"))
    assert graph.y.tolist() == [1, -1, 0, 1]
    assert (graph.train.tolist(), graph.val.tolist(), graph.test.tolist()) == ([0], [3], [2])


def test_words_among_labels_that_are_numbers_are_refused_with_what_to_do(source: Path) -> None:
    source.write_text("0,1\n")
    table = source.with_name("labels.csv")
    table.write_text("cat\ndog\n")
    with pytest.raises(BadInput, match=r"'cat' in column 0 .*: number the classes from 0 up"):
        imported(source, labels=table)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no file or folder .*nothing\.csv: check the name"):
        imported(tmp_path / "nothing.csv")


def test_fields_of_the_sample_are_split_as_the_kernel_does() -> None:
    assert table_form.split_fields('a,"b, c", d ', ",") == ["a", "b, c", "d"]


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        (["a;b;1,5", "c;d;2,5"], ";"),
        (["a;b", "c, d;e"], ";"),
        (["id,tags", "1,a;b;c", "2,d;e"], ","),
        (["a\t1,2,3", "b\t4,5,6"], "\t"),
        (['"x;y",1,2', '"z;w",3,4'], ","),
    ],
)
def test_the_delimiter_is_the_mark_that_cuts_all_lines_alike(lines: list[str], delimiter: str) -> None:
    assert table_form.delimiter_of(None, lines) == delimiter


@pytest.mark.parametrize("field", ["1.5", "1.0155", "12.34.567", "1.234,5,6", ".123,5", "1,5.000"])
def test_with_decimal_commas_a_point_that_parts_no_thousands_is_refused(source: Path, field: str) -> None:
    source.write_text("src;dst;paid\n" + "0;1;1,5\n" * 200 + f"0;1;{field}\n")
    with pytest.raises(
        BadInput, match=f"line 202: '{field}' in column 'paid' is not a number: the table has decimal commas"
    ):
        imported(source, weight="paid")


@given(st.integers(0, 10**9), st.integers(0, 99), st.booleans())
def test_numbers_with_decimal_commas_are_those_with_points(
    whole: int, hundredths: int, grouped: bool
) -> None:
    text = f"{whole:,}".replace(",", ".") if grouped else str(whole)
    data = np.frombuffer(f"{text},{hundredths:02}\n".encode(), np.uint8)
    assert parse._parse_number(data, 0, len(data) - 1, ord(",")) == (float(f"{whole}.{hundredths:02}"), True)

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from siafu.base.errors import BadInput, NoSpace
from siafu.graph import Graph
from siafu.graph.bf16 import to_bf16
from siafu.graph.importing.importer import both_ways, memory_budget
from siafu.graph.importing.readers.columns import VertexColumns
from siafu.graph.sorting import scratch
from tests.graph.imports import edge_set, imported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("src,dst\n0,1\n1,2\n2,2\n0,1\n")
    return path


def same_graph(found: Graph, expected: Graph) -> None:
    for name in ("indptr", "indices", "edge_weight", "x", "y", "train", "val", "test"):
        first, second = getattr(found, name), getattr(expected, name)
        assert (first is None) == (second is None), name
        assert first is None or np.array_equal(first, second), name
    assert found.is_symmetric == expected.is_symmetric


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("merge_parallel", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_import_makes_the_graph_that_from_edges_makes(
    tmp_path: Path, undirected: bool, merge_parallel: bool, weighted: bool
) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 50, (400, 2))
    weights = rng.integers(1, 9, 400) / 8
    source = tmp_path / "edges.txt"
    np.savetxt(source, np.column_stack([edges, weights]), fmt=["%d", "%d", "%g"])
    found = imported(
        source,
        weight="2" if weighted else None,
        undirected=undirected,
        merge_parallel=merge_parallel,
        num_vertices=60,
    )
    expected = Graph.from_edges(
        *edges.T,
        num_vertices=60,
        edge_weight=weights if weighted else None,
        undirected=undirected,
        merge_parallel=merge_parallel,
    )
    if weighted and undirected and not merge_parallel:
        # The two put the reverses of parallel edges in different places: compare what a sum over edges sees.
        assert np.array_equal(found.indices, expected.indices)
        assert found.is_symmetric
        return
    same_graph(found, expected)


def test_reverses_follow_their_edges() -> None:
    src, dst, weights = both_ways(np.array([0, 3, 1]), np.array([1, 3, 2]), np.array([1, 2, 3], np.float32))
    assert (src.tolist(), dst.tolist()) == ([0, 1, 3, 1, 2], [1, 0, 3, 2, 1])
    assert weights is not None
    assert weights.tolist() == [1, 1, 2, 3, 3]


def test_files_beside_the_edges_give_features_labels_and_split(source: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5))
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "y.csv").write_text("label\n1\n0\n2\n")
    (tmp_path / "split.csv").write_text("split\ntrain\nval\ntest\n")
    options = {
        "features": tmp_path / "x.npy",
        "labels": tmp_path / "y.csv",
        "split": str(tmp_path / "split.csv"),
    }
    expected = Graph.from_edges([0, 1, 2, 0], [1, 2, 2, 1], x=x, y=[1, 0, 2], train=[0], val=[1], test=[2])
    same_graph(imported(source, **options), expected)
    assert np.array_equal(imported(source, bf16=True, **options).x, to_bf16(x.astype(np.float32)))


def test_splits_and_labels_may_be_arrays_and_features_text(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([[1, 0], [0, 0], [1, 1]]))
    np.save(tmp_path / "split.npy", np.array([0, -1, 2]))
    (tmp_path / "x.csv").write_text("7\n8\n9\n")
    graph = imported(
        source,
        features=tmp_path / "x.csv",
        labels=tmp_path / "y.npy",
        split=str(tmp_path / "split.npy"),
    )
    assert graph.x is not None and graph.train is not None and graph.test is not None
    assert graph.x.tolist() == [[7], [8], [9]]
    assert graph.multi_label
    assert (graph.train.tolist(), graph.val, graph.test.tolist()) == ([0], None, [2])


def test_a_table_of_vertices_comes_in_any_order(source: Path, tmp_path: Path) -> None:
    table = tmp_path / "vertices.tsv"
    table.write_text("a\tid\tlabel\tb\tsplit\n0.5\t2\t1\t10\ttest\n1.5\t0\t\t11\t\n2.5\t1\t0\t12\ttrain\n")
    graph = imported(source, vertices=table)
    expected = Graph.from_edges(
        [0, 1, 2, 0], [1, 2, 2, 1], x=[[1.5, 11], [2.5, 12], [0.5, 10]], y=[-1, 0, 1], train=[1], test=[2]
    )
    same_graph(graph, expected)
    only_b = imported(source, vertices=table, vertex_columns=VertexColumns(features=("b",)))
    assert only_b.x is not None
    assert only_b.x.tolist() == [[11], [12], [10]]


def test_a_table_of_vertices_adds_vertices_without_edges(tmp_path: Path) -> None:
    source, table = tmp_path / "edges.csv", tmp_path / "vertices.csv"
    source.write_text("ann,bob\n")
    table.write_text("name,age\nzed,3\nbob,2\nann,1\n")
    graph = imported(source, header=False, vertices=table)
    assert graph.ids is not None and graph.x is not None
    assert graph.ids.tolist() == [b"ann", b"bob", b"zed"]
    assert graph.x.tolist() == [[1], [2], [3]]
    assert edge_set(graph) == [(b"ann", b"bob")]


def test_sparse_integers_carry_their_rows_along(tmp_path: Path) -> None:
    source, table = tmp_path / "edges.csv", tmp_path / "vertices.csv"
    ids = np.random.default_rng(0).choice(10**12, 3000, replace=False)
    np.savetxt(source, np.column_stack([ids, np.roll(ids, 1)]), fmt="%d")
    np.savetxt(
        table,
        np.column_stack([ids, ids % 97, ids % 89]),
        fmt="%d",
        delimiter=",",
        header="id,a,b",
        comments="",
    )
    graph = imported(source, vertices=table)
    assert np.array_equal(graph.ids, np.sort(ids))
    assert np.array_equal(graph.x, np.column_stack([np.sort(ids) % 97, np.sort(ids) % 89]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("id,f\n0,1\n1,2\n", "has no row for vertex 2: each vertex needs one"),
        ("id,f\n0,1\n1,2\n2,3\n1,4\n", "has two rows for vertex 1: give each vertex one row"),
        ("id,f\n0,1\n1,nan\n2,3\n", "line 3: 'nan' in column 'f' is not a finite number: fill it in"),
        ("id,f\n0,1\n# more\n1,\n2,3\n", "vertices.csv, line 4: there is nothing in column 'f': fill it in"),
        ("id,f\n0,1\n1,abc\n2,3\n", "vertices.csv, line 3: 'abc' in column 'f' is not a number"),
        (
            "id,split\n0,train\n1,some\n2,val\n",
            "vertices.csv, line 3, has the split 'some': write train, val, test, or nothing",
        ),
        ("id,split\n0,val\n1,val\n2,val\n", "train is empty"),
        ("id,label,split\n0,,train\n1,1,val\n2,1,val\n", "vertex 0 is in train but has no label"),
        ("id,label\n0,0.5\n1,1\n2,1\n", "y holds fractions"),
        ("name,f\nx,1\n", "has strings as ids, but the edges have integers"),
    ],
)
def test_bad_tables_of_vertices_are_refused(source: Path, tmp_path: Path, rows: str, message: str) -> None:
    table = tmp_path / "vertices.csv"
    table.write_text(rows)
    columns = VertexColumns(features=("f",)) if "f" in rows.split("\n")[0].split(",") else VertexColumns()
    with pytest.raises(BadInput) as error:
        imported(source, vertices=table, vertex_columns=columns)
    assert message in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "vertices.csv"]


@pytest.mark.parametrize(
    ("edges", "rows", "message"),
    [
        (
            "ann,bob\nbob,carl\n",
            "id,f\nann,1\nbob,2\n",
            "has no row for vertex 'carl': each vertex needs one",
        ),
        (
            "ann,bob\n",
            "id,f\nann,1\nbob,2\nbob,3\n",
            "has two rows for vertex 'bob': give each vertex one row",
        ),
        ("ann,bob\n", "id,label,split\nann,0,train\nbob,,test\n", "vertex 'bob' is in test but has no label"),
        ("5000000000,-7\n", "id,f\n-7,1\n", "has no row for vertex 5000000000: each vertex needs one"),
    ],
)
def test_a_vertex_with_a_name_is_told_by_it(
    source: Path, tmp_path: Path, edges: str, rows: str, message: str
) -> None:
    source.write_text(edges)
    table = tmp_path / "vertices.csv"
    table.write_text(rows)
    with pytest.raises(BadInput) as error:
        imported(source, vertices=table)
    assert message in str(error.value)


def test_a_table_and_files_beside_the_edges_exclude_each_other(source: Path) -> None:
    with pytest.raises(BadInput, match="not both"):
        imported(source, vertices=source, labels=source)


def test_a_row_for_a_vertex_that_cannot_be_is_refused(source: Path, tmp_path: Path) -> None:
    table = tmp_path / "vertices.csv"
    table.write_text("id,a\n0,1\n7,2\n")
    with pytest.raises(BadInput, match="id 7 is out of range: with 3 vertices"):
        imported(source, vertices=table, num_vertices=3)


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(scratch.os, "pwrite", full)
    with pytest.raises(NoSpace, match="no space left on the disk"):
        imported(source)
    assert sorted(path.name for path in source.parent.iterdir()) == ["edges.csv"]


def test_a_memory_limit_below_what_python_takes_is_refused() -> None:
    with pytest.raises(BadInput, match="a memory limit of 10 MB is too small: give at least"):
        memory_budget(10_000_000)


def test_the_budget_leaves_room_for_what_the_process_has_already() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert memory_budget(10**10) <= 10**10 - peak // 4
    assert memory_budget(None) > 0


def test_an_existing_store_is_kept_when_the_import_fails(source: Path) -> None:
    imported(source)
    manifest = source.parent / "imported.store" / "graph.json"
    before = manifest.read_bytes()
    source.write_text("src,dst\n0,1\n1,x\n")
    with pytest.raises(BadInput, match="line 3"):
        imported(source)
    assert manifest.read_bytes() == before


@pytest.mark.parametrize("rows", [2, 4])
def test_a_split_of_the_wrong_length_is_refused(source: Path, tmp_path: Path, rows: int) -> None:
    (tmp_path / "split.csv").write_text("train\n" * rows)
    with pytest.raises(BadInput, match=f"there are {rows} rows; give one for each of the 3 vertices"):
        imported(source, split=str(tmp_path / "split.csv"))


def test_a_split_that_is_no_code_is_refused(source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "split.npy", np.array([0, 1, 5]))
    with pytest.raises(BadInput, match="a split is 0 for train, 1 for val, 2 for test, -1 for none"):
        imported(source, split=str(tmp_path / "split.npy"))

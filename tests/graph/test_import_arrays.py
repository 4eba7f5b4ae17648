import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.datasets.bundle import read_bundle
from siafu.graph.importing.readers import edges as edges_reader
from tests.graph.imports import edge_set, imported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "graph.npz"


def random_matrix(seed: int = 0, size: int = 40) -> sp.csr_matrix:
    matrix = sp.random(size, size, 0.1, format="csr", random_state=seed, dtype=np.float32)
    matrix.sort_indices()
    return matrix


def same_edges(graph: Graph, matrix: sp.spmatrix) -> None:
    """Row i, column j of the matrix is the edge from i to j: by destination, that is CSC."""
    by_destination = matrix.tocsc()
    by_destination.sort_indices()
    assert np.array_equal(graph.indptr, by_destination.indptr)
    assert np.array_equal(graph.indices, by_destination.indices)
    if graph.edge_weight is not None:
        assert np.array_equal(graph.edge_weight, by_destination.data)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_what_scipy_saves_is_read(source: Path, layout: str) -> None:
    matrix = random_matrix()
    sp.save_npz(source, matrix.asformat(layout))
    graph = imported(source)
    assert graph.edge_weight is not None
    same_edges(graph, matrix)


def test_a_matrix_of_ones_has_no_weights(source: Path) -> None:
    matrix = random_matrix()
    matrix.data[:] = 1
    sp.save_npz(source, matrix)
    graph = imported(source)
    assert graph.edge_weight is None
    same_edges(graph, matrix)


def test_the_gnn_benchmark_layout_is_read(source: Path) -> None:
    adjacency, attributes = random_matrix(), random_matrix(1)
    labels = np.arange(40) % 5
    np.savez_compressed(
        source,
        adj_data=adjacency.data,
        adj_indices=adjacency.indices,
        adj_indptr=adjacency.indptr,
        adj_shape=adjacency.shape,
        attr_data=attributes.data,
        attr_indices=attributes.indices,
        attr_indptr=attributes.indptr,
        attr_shape=attributes.shape,
        labels=labels,
    )
    graph = imported(source)
    same_edges(graph, adjacency)
    assert np.array_equal(graph.x, attributes.toarray())
    assert np.array_equal(graph.y, labels)
    assert graph.num_classes == 5


def test_a_dense_attr_matrix_is_read(source: Path) -> None:
    matrix = random_matrix()
    rows = np.random.default_rng(0).random((40, 3))
    np.savez(source, adj_indices=matrix.indices, adj_indptr=matrix.indptr, attr_matrix=rows)
    graph = imported(source)
    assert np.array_equal(graph.x, rows.astype(np.float32))


@pytest.mark.parametrize("turned", [False, True])
def test_edges_in_one_array_are_rows_or_columns(source: Path, turned: bool) -> None:
    pairs = np.array([[0, 1, 2, 2], [1, 2, 0, 1]])
    np.savez(source, edge_index=pairs.T.copy() if turned else pairs, num_nodes=5)
    graph = imported(source)
    assert edge_set(graph) == [(0, 1), (1, 2), (2, 0), (2, 1)]
    assert graph.num_vertices == 5


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_edges_in_one_array_are_read_in_fortran_order(source: Path, turned: bool, count: int) -> None:
    pairs = np.array([[0, 2, 1, 2], [1, 0, 2, 1]])[:, :count]
    pairs = pairs.T if turned and count != 2 else pairs  # [2, 2] holds rows
    np.savez(source, edge_index=np.asfortranarray(pairs), num_nodes=5)
    assert edge_set(imported(source)) == sorted([(0, 1), (2, 0), (1, 2), (2, 1)][:count])


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_hardly_any_edges_in_one_array_are_read(source: Path, turned: bool, count: int) -> None:
    pairs = np.array([[0], [1]])[:, :count]
    np.savez(source, edge_index=pairs.T.copy() if turned else pairs, num_nodes=2)
    assert edge_set(imported(source)) == [(0, 1)][:count]


def test_an_edge_list_with_split_and_sparse_features_is_read(shared_data: Path, tmp_path: Path) -> None:
    source = tmp_path / "cora.npz"
    source.symlink_to(shared_data / "graphs" / "cora.npz")
    graph = imported(source, undirected=True, bf16=True)
    with np.load(source, allow_pickle=False) as arrays:
        features = sp.csr_matrix(
            (np.ones(len(arrays["x_indices"])), arrays["x_indices"].astype(np.int32), arrays["x_indptr"]),
            shape=(2708, int(arrays["x_dim"])),
        )
        expected = Graph.from_edges(
            arrays["src"],
            arrays["dst"],
            num_vertices=2708,
            undirected=True,
            x=features.toarray(),
            y=arrays["y"],
            train=arrays["split"] == 0,
            val=arrays["split"] == 1,
            test=arrays["split"] == 2,
        ).with_bf16_features()
    for name in ("indptr", "indices", "x", "y", "train", "val", "test"):
        assert np.array_equal(getattr(graph, name), getattr(expected, name)), name
    assert graph.is_symmetric
    assert (graph.num_classes, graph.name) == (7, "imported")


def test_blocks_are_cut_anywhere_in_a_matrix(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges_reader, "EDGES_AT_ONCE", 7)
    matrix = random_matrix()
    sp.save_npz(source, matrix)
    same_edges(imported(source), matrix)


_MATRIX = {"format": "csr", "shape": [2, 2], "indptr": [0, 1, 2], "indices": [1, 0], "data": [2.0, 3.0]}
_SPARSE = {"src": [0], "dst": [1], "num_nodes": 2, "x_indptr": [0, 1, 2], "x_indices": [0, 3], "x_dim": 4}


def test_compressed_edges_may_have_weights(source: Path) -> None:
    np.savez(source, indptr=[0, 1, 2], indices=[1, 0], edge_weight=[2.0, 3.0])
    weights = imported(source).edge_weight
    assert weights is not None
    assert weights.tolist() == [3.0, 2.0]


def test_a_header_with_a_negative_shape_is_refused(source: Path) -> None:
    features = source.with_name("x.npy")
    np.save(features, np.zeros((12, 3), np.float32))
    features.write_bytes(features.read_bytes().replace(b"(12, 3)", b"(-2, 3)"))
    np.savez(source, src=[0], dst=[1])
    with pytest.raises(BadInput, match=r"x\.npy is damaged: its header says shape \(-2, 3\)"):
        imported(source, features=features)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros(3)}, "has the arrays a: siafu reads adj_indptr"),
        ({"src": [0, 9], "dst": [1, 1], "num_nodes": 3}, "entry 1: id 9 is out of range: with 3 vertices"),
        ({"src": [0, 1], "dst": [1, 1, 2]}, "edges are two lists of one length"),
        ({"src": [0.5], "dst": [1.0], "num_nodes": 3}, "holds float64: vertex ids are whole numbers"),
        ({"indptr": [0, 2, 1], "indices": [0, 1]}, "indptr] falls from 2 to 1"),
        ({"indptr": [0, 1, 1], "indices": [0, 1]}, "ends at 1, but there are 2 entries"),
        (
            {"src": [0], "dst": [1], "num_nodes": 2, "y": [0, 1, 1]},
            "there are 3 rows; give one for each of the 2",
        ),
        ({"src": [0], "dst": [1], "num_nodes": 2, "x": [[1.0], [np.nan]]}, "feature 0 of vertex 1 is NaN"),
        ({"src": [0], "dst": [1], "num_nodes": 2, "x": [1.0, 2.0]}, "give a row of numbers"),
        ({"src": [0], "dst": [1], "num_nodes": 2, "split": [1, 2]}, "train is empty"),
        ({"src": [0], "dst": [1], "train_idx": [0], "valid_idx": [0]}, "vertex 0 is in both train and val"),
        ({"src": [0], "dst": [1], "train_idx": [0, 0]}, "train names a vertex twice"),
        ({"src": [0], "dst": [1], "train_idx": [7]}, "train[0] is 7: with 2 vertices"),
        ({"src": [0], "dst": [1], "train_idx": [0], "y": [-1, 0]}, "vertex 0 is in train but has no label"),
        ({"src": [0], "dst": [1], "edge_weight": [np.inf]}, "entry 0: the weight is not a finite number"),
        ({"src": [0], "dst": [1], "edge_weight": [1, 2]}, "give one number for each of 1 edges"),
        ({"src": [0], "dst": [1], "edge_weight": ["a"]}, "edge_weight] holds <U1: give real numbers"),
        ({"src": [0], "dst": [1], "edge_weight": [1j]}, "edge_weight] holds complex128: give real numbers"),
        ({"src": [0], "dst": [1], "num_nodes": np.nan}, "num_nodes] should hold one whole number"),
        ({"src": [0], "dst": [1], "num_nodes": 2.5}, "num_nodes] should hold one whole number"),
        ({"src": [0], "dst": [1], "num_nodes": -2}, "num_nodes] should hold one whole number"),
        ({"src": [0], "dst": [1], "num_nodes": "2"}, "num_nodes] should hold one whole number"),
        ({"src": [0], "dst": [1], "num_nodes": np.empty(0)}, "num_nodes] should hold one whole number"),
        ({"src": np.array([2**63 + 1], np.uint64), "dst": [1]}, "9223372036854775809: ids go to 2**63 - 1"),
        ({"indptr": [0.0, 1.0], "indices": [0]}, "type float64: give a list of whole numbers"),
        ({"indptr": [1, 2], "indices": [0, 0]}, "indptr] starts at 1: positions start at 0"),
        ({"indptr": np.empty(0, np.int64), "indices": [0]}, "indptr] is empty"),
        (
            {"indptr": [0, 1], "indices": [0], "num_nodes": 5},
            "indptr] has 2 positions: a matrix of 5 rows has 6",
        ),
        ({**_MATRIX, "shape": np.empty(0, np.int64)}, "shape] should hold how many rows and columns"),
        ({**_MATRIX, "shape": [3, 3]}, "indptr] has 3 positions: a matrix of 3 rows has 4"),
        ({**_MATRIX, "data": [1j, 2]}, "data] holds complex128: give real numbers"),
        ({**_MATRIX, "data": [2.0]}, "data] has shape (1,): give one number for each of 2 edges"),
        ({**_MATRIX, "format": ["csr", "csr"]}, "is a SciPy matrix of format ''"),
        (
            {"format": "coo", "shape": [2, 3], "row": [0], "col": [1], "data": [1]},
            "a matrix of shape (2, 3): a graph's matrix is square",
        ),
        ({"adj_indptr": [0, 1], "adj_indices": [0], "adj_shape": 1}, "adj_shape] should hold how many rows"),
        ({**_SPARSE, "x_indptr": [0, 2, 1]}, "x_indptr] falls from 2 to 1"),
        ({**_SPARSE, "x_indptr": [0, 1, 1]}, "x_indptr] ends at 1, but there are 2 entries"),
        ({**_SPARSE, "x_data": ["a", "b"]}, "x_data] holds <U1: give real numbers"),
        ({**_SPARSE, "x_data": [1]}, "x_data] has shape (1,): give one number for each of 2 entries"),
        ({**_SPARSE, "x_dim": np.nan}, "x_dim] should hold one whole number"),
        ({**_SPARSE, "x_indices": [0, -1]}, "x_indices] has a column that is not from 0 to 3"),
    ],
)
def test_arrays_that_make_no_graph_are_refused(source: Path, arrays: dict[str, object], message: str) -> None:
    np.savez(source, **arrays)  # type: ignore[arg-type]
    with pytest.raises(BadInput) as error:
        imported(source)
    assert message in str(error.value)
    assert sorted(path.name for path in source.parent.iterdir()) == ["graph.npz"]


def test_python_objects_are_refused(source: Path) -> None:
    np.savez(source, src=np.array([{}], dtype=object), dst=np.array([0]))
    with pytest.raises(BadInput, match="holds Python objects, which only pickle reads"):
        imported(source)


def test_a_cut_off_archive_is_refused(source: Path) -> None:
    np.savez(source, src=np.zeros(1000, np.int64), dst=np.zeros(1000, np.int64))
    source.write_bytes(source.read_bytes()[:5000])
    with pytest.raises(BadInput, match=r"is not an \.npz archive, or is cut off"):
        imported(source)


def with_header(path: Path, dtype: str, shape: str, data: bytes = bytes(96)) -> Path:
    """An `.npy` file whose header says what it likes."""
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)
    return path


@pytest.mark.parametrize(
    ("dtype", "shape", "why"),
    [
        ("'<f4'", "(1099511627776, 3)", "is cut off: it has fewer values than its header says"),
        ("'<f4'", "(12, 1099511627776)", "is cut off: it has fewer values"),
        ("'<f4'", "(4294967296, 4294967296)", "is damaged: its header says shape"),
        ("'<f4'", "(0, 1152921504606846976)", "is damaged: its header says shape"),
        ("'<f4'", "(8, 2)", "has more values than its header says"),
        ("'|S0'", "(1099511627776,)", "is damaged"),
        ("'|V4611686018427387904'", "(1,)", "is not a NumPy array"),
        ("'<f4'", "(12.0, 2)", "is not a NumPy array"),
        ("'<f4'", "(" * 90, "is not a NumPy array"),
        ("[('a', '<f4')]", "(24,)", "give a row of numbers|give numbers"),
        ("__import__('os')", "(24,)", "is not a NumPy array"),
    ],
)
def test_a_header_that_promises_what_is_not_there_is_refused_before_anything_is_allocated(
    source: Path, dtype: str, shape: str, why: str
) -> None:
    np.savez(source, src=[0], dst=[11])
    features = with_header(source.with_name("x.npy"), dtype, shape)
    tracemalloc.start()
    with pytest.raises(BadInput, match=why) as caught:
        imported(source, features=features)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("read", [imported, read_bundle])
def test_an_archives_member_that_promises_what_is_not_there_is_refused(
    source: Path, read: Callable[[Path], Graph]
) -> None:
    np.savez(source, src=[0], dst=[1], num_nodes=2)
    huge = with_header(source.with_name("x.npy"), "'<f4'", "(2, 1099511627776)")
    with zipfile.ZipFile(source, "a") as archive:
        archive.write(huge, "x.npy")
    with pytest.raises(BadInput, match=r"graph\.npz\[x\] is cut off"):
        read(source)


@pytest.mark.parametrize("read", [imported, read_bundle])
def test_an_archive_whose_directory_promises_what_is_not_there_is_refused(
    source: Path, read: Callable[[Path], Graph]
) -> None:
    np.savez_compressed(source, src=np.zeros(1000, np.int64), dst=np.zeros(1000, np.int64), num_nodes=1)
    with zipfile.ZipFile(source) as archive:
        size = archive.getinfo("src.npy").file_size
    data = source.read_bytes()
    source.write_bytes(data.replace(size.to_bytes(4, "little"), (2**31).to_bytes(4, "little")))
    with pytest.raises(BadInput, match="cannot be packed in this file"):
        read(source)


@pytest.mark.parametrize("read", [imported, read_bundle])
def test_a_count_of_vertices_that_the_file_has_no_room_for_is_refused(
    source: Path, read: Callable[[Path], Graph]
) -> None:
    np.savez(source, src=[0], dst=[1], num_nodes=2**39)
    with pytest.raises(BadInput, match="far more vertices than"):
        read(source)


@pytest.mark.parametrize("read", [imported, read_bundle])
def test_a_width_that_no_entry_uses_is_refused(source: Path, read: Callable[[Path], Graph]) -> None:
    np.savez(source, src=[0], dst=[1], num_nodes=2, x_indptr=[0, 1, 1], x_indices=[0], x_dim=2**50)
    with pytest.raises(BadInput, match="far more columns than the 1 entries use"):
        read(source)


def test_an_encrypted_archive_is_refused(source: Path) -> None:
    np.savez(source, src=[0], dst=[1])
    data = bytearray(source.read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(magic, at + 1)) >= 0:
            data[at + flags] |= 1
    source.write_bytes(data)
    with pytest.raises(BadInput, match="encrypted"):
        imported(source)


def test_features_beyond_float32_are_refused(source: Path) -> None:
    np.savez(source, src=[0], dst=[1], x=np.array([[1.0], [1e300]]))
    with pytest.raises(BadInput, match="feature 0 of vertex 1 is NaN or infinite"):
        imported(source)


@pytest.mark.parametrize("rows", [1, 3])
def test_labels_of_the_wrong_number_beside_a_split_are_refused(source: Path, rows: int) -> None:
    np.savez(source, src=[0], dst=[1], num_nodes=2, train_idx=[0])
    labels = source.with_name("y.csv")
    labels.write_text("0\n" * rows)
    with pytest.raises(BadInput, match=f"there are {rows} rows; give one for each of the 2 vertices"):
        imported(source, labels=labels)


@pytest.mark.parametrize("read", [imported, read_bundle])
def test_an_archive_whose_directory_misnames_an_array_is_refused(
    source: Path, read: Callable[[Path], Graph]
) -> None:
    np.savez(source, src=[0], dst=[1], num_nodes=9, directed=True)
    data = source.read_bytes()
    at = data.rindex(b"directed.npy")
    source.write_bytes(data[:at] + b"dirested" + data[at + 8 :])
    with pytest.raises(BadInput, match="is damaged: File name in directory"):
        read(source)


@pytest.mark.parametrize("kind", ["U", "S"])
def test_labels_that_are_words_in_an_array_are_classes_with_names(tmp_path: Path, kind: str) -> None:
    words = np.array(["cat", "", "dog", "NA", "ant"]).astype(kind)
    np.savez(tmp_path / "graph.npz", src=[0, 1, 2, 3], dst=[1, 2, 3, 4], y=words)
    np.save(tmp_path / "y.npy", words)
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n2,3\n3,4\n")
    for graph in (
        imported(tmp_path / "graph.npz"),
        imported(tmp_path / "edges.csv", labels=tmp_path / "y.npy"),
    ):
        assert graph.y is not None
        assert (graph.y.tolist(), graph.class_names) == ([1, -1, 2, -1, 0], ("ant", "cat", "dog"))

"""Graph: what it holds, how it is made, what it refuses."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph, read_store


def triangle(**data: object) -> Graph:
    return Graph.from_edges([0, 1, 2], [1, 2, 0], num_vertices=4, **data)


def test_in_edges_are_by_destination() -> None:
    graph = triangle()
    np.testing.assert_array_equal(graph.indptr, [0, 1, 2, 3, 3])
    np.testing.assert_array_equal(graph.indices, [2, 0, 1])
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32


def test_the_transpose_is_made_when_first_needed_and_shared_if_symmetric() -> None:
    directed = triangle()
    assert not directed.is_symmetric
    np.testing.assert_array_equal(directed.out_edges.indices, [1, 2, 0])
    undirected = Graph.from_edges([0, 1, 2], [1, 2, 0], undirected=True)
    assert undirected.is_symmetric
    assert undirected.out_edges.indices is undirected.indices


def test_undirected_adds_no_second_self_loop() -> None:
    graph = Graph.from_edges([0, 1], [0, 0], num_vertices=2, undirected=True)
    assert graph.num_edges == 3
    assert graph.num_self_loops == 1


def test_rows_given_out_of_order_are_sorted_with_their_weights() -> None:
    graph = Graph.from_csr([0, 3, 3, 3], [2, 0, 1], edge_weight=[0.2, 0.0, 0.1])
    np.testing.assert_array_equal(graph.indices, [0, 1, 2])
    np.testing.assert_allclose(graph.edge_weight, [0.0, 0.1, 0.2], rtol=1e-6)


def test_arrays_that_fit_are_not_copied() -> None:
    indptr, indices = np.array([0, 1, 2], np.int64), np.array([1, 0], np.int32)
    x = np.ones((2, 3), np.float32)
    graph = Graph.from_csr(indptr, indices, x=x)
    assert np.shares_memory(graph.indices, indices)
    assert np.shares_memory(graph.x, x)


def test_torch_tensors_and_masks_are_taken() -> None:
    graph = triangle(
        x=torch.ones(4, 2), y=torch.tensor([0, 1, 0, -1]), train=torch.tensor([True, False, True, False])
    )
    np.testing.assert_array_equal(graph.train, [0, 2])
    assert graph.num_classes == 2
    assert "2 classes" in repr(graph) and "2 features (fp32)" in repr(graph)


def test_bfloat16_tensors_stay_bfloat16() -> None:
    graph = triangle(x=torch.full((4, 2), 1.5, dtype=torch.bfloat16))
    assert graph.x.dtype == np.uint16
    assert "bf16" in repr(graph)


def test_bfloat16_edge_weights_keep_their_values() -> None:
    graph = triangle(edge_weight=torch.tensor([0.5, 1.5, 2.0], dtype=torch.bfloat16))
    np.testing.assert_array_equal(graph.edge_weight, np.array([2.0, 0.5, 1.5], np.float32))


def test_features_of_small_whole_numbers_are_numbers() -> None:
    """Only a bfloat16 tensor is bits: 16-bit integers are what they say."""
    x = np.array([[1, 2], [3, 4], [5, 6], [0x7F80, 8]], np.uint16)
    np.testing.assert_array_equal(triangle(x=x).x, x.astype(np.float32))
    assert triangle(x=torch.from_numpy(x)).x.dtype == np.float32


def test_unsigned_ids_are_taken() -> None:
    ends = np.array([0, 1], np.uint64)
    np.testing.assert_array_equal(Graph.from_edges(ends, ends[::-1]).indices, [1, 0])


def test_labels_of_many_columns_are_multi_label() -> None:
    graph = triangle(y=np.eye(4))
    assert graph.multi_label and graph.num_classes == 4
    assert "4 labels" in repr(graph)


def test_a_column_of_labels_with_nan_is_single_label() -> None:
    graph = triangle(y=np.array([[0.0], [1.0], [np.nan], [2.0]]))
    np.testing.assert_array_equal(graph.y, [0, 1, -1, 2])


@pytest.mark.parametrize(
    "data,message",
    [
        ({"x": np.ones((3, 2))}, "one row of features for each of the 4 vertices"),
        ({"x": np.array([[1.0], [np.nan], [1.0], [1.0]])}, "feature 0 of vertex 1 is NaN"),
        (
            {"x": torch.tensor([[1.0], [torch.inf], [1.0], [1.0]], dtype=torch.bfloat16)},
            "feature 0 of vertex 1 is NaN or infinite",
        ),
        ({"x": np.array([[1.0], [1e300], [1.0], [1.0]])}, "feature 0 of vertex 1 is NaN or infinite"),
        ({"x": np.array([[b"1"]] * 4)}, "x holds words: give columns of numbers"),
        ({"edge_weight": [b"1", b"2", b"3"]}, "edge_weight holds .S1: give numbers"),
        ({"y": [b"1"] * 4}, "y holds .S1: give numbers"),
        ({"train": b"1"}, "train holds .S1: give numbers"),
        ({"y": [0, 1, 2, np.inf]}, "y has infinite numbers"),
        ({"y": [0, 1, 2, 2**31]}, "y has class 2147483648"),
        ({"y": np.array([0, 1, 2, 2**64 - 1], np.uint64)}, "y has class 18446744073709551615"),
        ({"y": [0, 1, 2, 0], "num_classes": 2**40}, "num_classes is 1099511627776"),
        ({"y": [0, 1, 2, 0], "num_classes": 3.0}, r"num_classes is 3\.0: give a whole number"),
        ({"ids": np.array([0, 1, 2, 2**63], np.uint64)}, r"ids\[3\] is 9223372036854775808"),
        ({"ids": [0, 1, 2, 2**70]}, "ids has .* type object: give one integer or name"),
        ({"ids": [7, 1, 2, 7]}, "ids has 7 twice"),
        ({"ids": [b"a", b"b", b"a", b"c"]}, "ids has b'a' twice"),
        ({"x": torch.ones(4, 2).to_sparse()}, "x is not an array of numbers"),
        ({"y": [0, 1, 2]}, "y has 3 labels: give one for each of the 4"),
        ({"y": [0, 1, 2, -2]}, "y has class -2"),
        ({"y": [0, 1, 2, 0.5], "num_classes": 3}, "fractions"),
        ({"y": np.full((4, 2), 2)}, "zeros and ones"),
        ({"y": [0, 1, 2, 3], "num_classes": 3}, "class 3 but num_classes is 3"),
        ({"train": [0, 1], "val": [1]}, "vertex 1 is in both train and val"),
        ({"train": []}, "train is empty"),
        ({"train": [0, 9]}, r"train\[1\] is 9: with 4 vertices"),
        ({"train": [0, 0]}, "names a vertex twice"),
        ({"train": np.ones(3, bool)}, "one boolean for each of the 4"),
        ({"y": [0, -1, 0, 0], "train": [1]}, "vertex 1 is in train but has no label"),
        ({"edge_weight": [1.0]}, "edge_weight has shape"),
        ({"edge_weight": [1.0, np.inf, 0.0]}, r"edge_weight\[1\] is not finite"),
        ({"ids": [1, 2]}, "one integer or name for each of the 4"),
        ({"x": [["a", "b"]] * 4}, "x holds words: give columns of numbers"),
    ],
)
def test_bad_data_is_refused_in_one_line(data: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        triangle(**data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make,message",
    [
        (
            lambda: Graph.from_edges([0, 5], [1, 1], num_vertices=3),
            r"src\[1\] is 5: with 3 vertices, ids go from 0 to 2",
        ),
        (lambda: Graph.from_edges([0, -1], [1, 1]), r"src\[1\] is -1"),
        (lambda: Graph.from_edges([0], [1, 1]), "two lists of one length"),
        (lambda: Graph.from_edges([0.5], [1.0]), "whole numbers"),
        (lambda: Graph.from_edges([0, np.nan], [1, 1]), "src.1. is missing"),
        (lambda: Graph.from_edges([0, 1], [1, np.inf]), "dst has type float64"),
        (
            lambda: Graph.from_edges(np.array([0, 2**64 - 1], np.uint64), [1, 1]),
            r"src\[1\] is 18446744073709551615",
        ),
        (lambda: Graph.from_edges([0, 2**41], [1, 1]), r"src\[1\] is 2199023255552"),
        (lambda: Graph.from_edges([0, 2**31], [1, 1]), r"src\[1\] is 2147483648, far beyond the 2 edges"),
        (lambda: Graph.from_edges([0], [1], num_vertices=2**40), "more than this machine's memory"),
        (lambda: Graph.from_edges(np.array([0, 1], object), [1, 1]), "src holds object"),
        (lambda: Graph.from_edges(None, None), "src holds object"),
        (lambda: Graph.from_edges([[0, 1]], [[1, 1]]), "two lists of one length"),
        (lambda: Graph.from_edges(np.ma.array([0, 9], mask=[0, 1]), [1, 1]), "src has masked values"),
        (lambda: Graph.from_edges([0], [1], name=5), "name is 5: give a text"),
        (lambda: Graph.from_csr(np.array([0, 2**63], np.uint64), [0]), "indptr falls"),
        (lambda: Graph.from_csr([0, 1], [2**40]), r"indices\[0\] is 1099511627776"),
        (lambda: Graph.from_csr([0, 1], [-1]), r"indices\[0\] is -1"),
        (lambda: Graph.from_edges([0], [1], num_vertices=2**41), "num_vertices is 2199023255552"),
        (lambda: Graph.from_edges([0], [1], num_vertices=-1), "num_vertices is -1"),
        (lambda: Graph.from_edges([0], [1], num_vertices=2.5), r"num_vertices is 2\.5: give a whole number"),
        (lambda: Graph.from_edges([0], [1], num_vertices="2"), "num_vertices is '2'"),
        (lambda: Graph.from_edges([0], [1], num_vertices=True), "num_vertices is True"),
        (lambda: Graph.from_csr([0.0, 1.5], [0]), "indptr has type float64"),
        (lambda: Graph.from_csr([0, 1], [0.0]), "give a list of whole numbers"),
        (lambda: Graph.from_csr([0, 2, 1], [0, 0]), "indptr falls after vertex 1"),
        (lambda: Graph.from_csr([1, 2], [0, 0]), "starts at 0"),
        (lambda: Graph.from_csr([0, 3], [0]), "indptr ends at 3, but indices has 1"),
        (lambda: Graph.from_csr([0, 1], [[0], [1, 2]]), "not an array of numbers"),
    ],
)
def test_bad_edges_are_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_empty_graph_is_a_graph() -> None:
    graph = Graph.from_edges([], [], num_vertices=0)
    assert graph.num_vertices == graph.num_edges == 0
    assert graph.is_symmetric


def test_public_names_load_lazily() -> None:
    assert siafu.Graph is Graph
    assert "train" in dir(siafu)
    with pytest.raises(AttributeError, match="no attribute 'nodes'"):
        _ = siafu.nodes


def test_importing_siafu_brings_in_neither_torch_nor_numba() -> None:
    import subprocess
    import sys

    program = "import sys, siafu; sys.exit(bool({'torch', 'numba', 'numpy', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_changing_a_field_keeps_what_is_known_of_the_edges() -> None:
    graph = triangle()
    turned = graph.out_edges
    assert graph.replace(name="other").out_edges is turned
    assert graph.replace(edge_weight=np.ones(3, np.float32)).out_edges is not turned


def test_labels_that_are_words_are_classes_with_names(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 2], num_vertices=4, y=["b", None, "a", "b"])
    assert (graph.y.tolist(), graph.num_classes, graph.class_names) == ([1, -1, 0, 1], 2, ("a", "b"))
    graph.save(tmp_path / "store")
    assert read_store(tmp_path / "store").class_names == ("a", "b")


def test_a_mistyped_keyword_is_told_the_nearest() -> None:
    with pytest.raises(BadInput, match="no keyword feature_name: did you mean feature_names"):
        Graph.from_edges([0], [1], feature_name=["a"])


def test_columns_of_features_keep_their_names(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], x=[[1, 2], [3, 4]], feature_names=["age", "height"])
    graph.with_bf16_features().save(tmp_path / "store")
    assert read_store(tmp_path / "store").feature_names == ("age", "height")
    assert graph.replace(x=graph.x[:, :1]).feature_names == ()  # other features, whose names nobody gave
    with pytest.raises(BadInput, match="feature_names has 1 names, and x has 2 columns"):
        Graph.from_edges([0], [1], x=[[1, 2], [3, 4]], feature_names=["age"])
    with pytest.raises(BadInput, match="give a list"):
        Graph.from_edges([0], [1], x=[[1, 2], [3, 4]], feature_names="ab")


def test_a_data_frame_brings_the_names_of_its_columns() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"age": [1, 2], "height": [3, 4]})
    assert Graph.from_edges([0], [1], x=frame).feature_names == ("age", "height")


def test_a_split_is_drawn_among_labelled_vertices() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], num_vertices=5, y=[0, -1, 1, 0, 1]).split(0.5, 0.5, seed=3)
    assert sorted([*graph.train, *graph.val]) == [0, 2, 3, 4]
    assert graph.test is None
    with pytest.raises(BadInput, match="no labels"):
        graph.replace(y=None, train=None, val=None).split(0.5)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("num_nodes", "num_vertices"), ("train_mask", "ids of vertices"), ("ndata", "x, y, train")],
)
def test_names_of_other_libraries_are_told_ours(theirs: str, ours: str) -> None:
    graph = Graph.from_edges([0], [1])
    with pytest.raises(AttributeError, match=f"a Graph has no {theirs}: it has .*{ours}"):
        getattr(graph, theirs)
    with pytest.raises(AttributeError, match=r"a Graph has no nothing$"):
        getattr(graph, "nothing")  # noqa: B009
    assert not hasattr(graph, "edge_index")


def test_a_graph_is_copied_and_pickled_as_it_was() -> None:
    graph = Graph.from_edges([0, 1], [1, 0], x=np.ones((2, 3), np.float32))
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        np.testing.assert_array_equal(again.x, graph.x)


def test_an_edge_index_as_a_whole_is_told_how_to_be_given() -> None:
    with pytest.raises(BadInput, match=r"of PyG's edge_index \[2, E\] give \*edge_index"):
        Graph.from_edges(np.array([[0, 1], [1, 0]]))


def test_columns_of_pandas_are_taken_as_they_are(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    people = pandas.DataFrame(
        {"who": ["ann", "bob", "Zoë"], "team": ["red", None, "blue"], "age": [31, 45, 28]}
    )
    graph = Graph.from_edges([0, 1], [1, 2], x=people[["age"]], y=people["team"], ids=people["who"])
    assert (graph.y.tolist(), graph.class_names) == ([1, -1, 0], ("blue", "red"))
    assert [each.decode() for each in graph.ids] == ["ann", "bob", "Zoë"]
    assert Graph.from_edges([0], [1], y=people["team"].astype("category")[:2]).y.tolist() == [0, -1]
    with pytest.raises(BadInput, match=r"x holds words: give columns of numbers; pandas\.get_dummies"):
        Graph.from_edges([0, 1], [1, 2], x=people[["team", "age"]])
    with pytest.raises(BadInput, match=r"src\[1\] is missing: drop that edge"):
        Graph.from_edges(pandas.Series([0, None]), [1, 2])
    with pytest.raises(BadInput, match=r"dst\[1\] is missing: drop that edge"):
        Graph.from_edges([0, 1], pandas.Series([0, None]), num_vertices=3)

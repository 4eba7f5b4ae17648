"""What a bundle's arrays must be like."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.graph.datasets.bundle import read_bundle

_PLAIN: dict[str, Any] = {"num_nodes": 3, "src": [0, 1], "dst": [1, 2], "directed": True}
_SPARSE = {**_PLAIN, "x_indptr": [0, 1, 2, 2], "x_indices": [0, 3], "x_dim": 4}
_COMPRESSED = {"num_nodes": 3, "indptr": [0, 1, 2, 2], "indices": [1, 2]}


def bundle(folder: Path, arrays: dict[str, Any]) -> Path:
    path = folder / "small.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("edges", [_PLAIN, _COMPRESSED])
def test_weights_are_taken(tmp_path: Path, edges: dict[str, Any]) -> None:
    graph = read_bundle(bundle(tmp_path, {**edges, "edge_weight": [2.0, 0.5]}))
    assert graph.indices.tolist() == [0, 1]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.0, 0.5]


def test_sparse_features_are_taken_with_their_values(tmp_path: Path) -> None:
    graph = read_bundle(bundle(tmp_path, {**_SPARSE, "x_data": [5.0, 7.0]}))
    assert graph.x is not None
    assert graph.x.tolist() == [[5, 0, 0, 0], [0, 0, 0, 7], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({**_PLAIN, "num_nodes": np.empty(0, np.int64)}, "[num_nodes] should hold one whole number"),
        ({**_PLAIN, "num_nodes": "3"}, "[num_nodes] should hold one whole number"),
        ({**_PLAIN, "num_nodes": -3}, "[num_nodes] should hold one whole number"),
        ({**_PLAIN, "y": ["a", "b", "c"]}, "y holds <U1: number the classes from 0 up"),
        ({**_PLAIN, "y": np.array([b"1", b"0", b"1"])}, "y holds |S1: number the classes from 0 up"),
        ({**_PLAIN, "x": [[1j], [0], [0]]}, "x holds complex128: give real numbers"),
        ({**_PLAIN, "edge_weight": ["1", "2"]}, "edge_weight holds <U1: give real numbers"),
        ({**_PLAIN, "edge_weight": [1.0]}, "give one number for each of 2 edges"),
        ({**_PLAIN, "y": [0, 1, 0], "split": [0, 1, 3]}, "the split is not as it should be"),
        ({**_COMPRESSED, "indptr": [0.0, 1.0, 2.0, 2.0]}, "type float64: give a list of whole numbers"),
        ({**_COMPRESSED, "indptr": [0, 2, 1, 2]}, "[indptr] falls from 2 to 1"),
        ({**_COMPRESSED, "indptr": [0, 1, 1, 1]}, "[indptr] ends at 1, but there are 2 entries"),
        ({**_SPARSE, "x_indptr": [1, 1, 2, 2]}, "[x_indptr] starts at 1: positions start at 0"),
        ({**_SPARSE, "x_indices": [0, -1]}, "[x_indices] has a column that is not from 0 to 3"),
        ({**_SPARSE, "x_indices": [0, 4]}, "[x_indices] has a column that is not from 0 to 3"),
        ({**_SPARSE, "x_data": [1.0]}, "[x_data] has shape (1,): give one number for each of 2 entries"),
        ({**_SPARSE, "x_dim": np.empty(0)}, "[x_dim] should hold one whole number"),
    ],
)
def test_arrays_that_make_no_graph_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    path = bundle(tmp_path, arrays)
    with pytest.raises(BadInput) as error:
        read_bundle(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)

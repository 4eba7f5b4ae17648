"""Layouts: the same graph with other numbers, in memory and in a store."""

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import siafu
from siafu import Graph
from siafu.base.errors import StoreError
from siafu.graph import read_store
from siafu.graph.reorder import make_order, write_layout
from siafu.graph.reorder.layout import held_layout
from siafu.graph.stores.fingerprint import fingerprint
from siafu.graph.stores.manifest import sealed
from tests.graph.partition.graphs import graphs
from tests.toys import toy_graph


def _matrix(graph: Graph, numbers: np.ndarray) -> np.ndarray:
    """Weights between vertices by other numbers, parallel edges added up."""
    size = graph.num_vertices
    weights = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    ends = np.repeat(numbers, np.diff(graph.indptr))
    return sp.coo_matrix((weights, (ends, numbers[graph.indices])), (size, size)).toarray()


def _same_graph(graph: Graph, layout: Graph) -> None:
    assert layout.renumbered is not None
    order = layout.renumbered.order
    np.testing.assert_array_equal(_matrix(layout, order), _matrix(graph, np.arange(graph.num_vertices)))
    for i in range(graph.num_vertices):
        assert (np.diff(layout.indices[layout.indptr[i] : layout.indptr[i + 1]]) >= 0).all()
    for name in ("x", "y"):
        if getattr(graph, name) is not None:
            np.testing.assert_array_equal(getattr(layout, name), getattr(graph, name)[order])
    for name in ("train", "val", "test"):
        if (split := getattr(graph, name)) is not None:
            np.testing.assert_array_equal(np.sort(order[getattr(layout, name)]), split)
            assert (np.diff(getattr(layout, name)) > 0).all()


@given(graph=graphs())
@settings(max_examples=40, deadline=None)
def test_a_layout_is_the_same_graph_by_the_users_numbers(graph: Graph) -> None:
    order = np.random.default_rng(graph.num_edges).permutation(graph.num_vertices).astype(np.int32)
    _same_graph(graph, held_layout(graph, order, "any"))


@pytest.mark.slow
def test_weights_go_with_their_edges() -> None:
    rng = np.random.default_rng(0)
    graph = toy_graph()
    graph = graph.replace(edge_weight=rng.random(graph.num_edges).astype(np.float32))
    _same_graph(graph, held_layout(graph, make_order(graph, "rabbit"), "rabbit"))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    toy_graph(ids=np.arange(210) * 7).save(tmp_path / "toy")
    graph = read_store(tmp_path / "toy")
    write_layout(tmp_path / "toy", graph, make_order(graph, "rabbit"), "rabbit")
    return tmp_path / "toy"


def test_a_store_with_a_layout_reads_as_before_and_has_the_layout_besides(stored: Path) -> None:
    graph = siafu.load(stored)
    assert fingerprint(graph) == fingerprint(toy_graph())
    np.testing.assert_array_equal(graph.ids, np.arange(210) * 7)
    assert graph.layout is not None
    _same_graph(graph, graph.layout)
    assert graph.layout.renumbered.method == "rabbit"


def test_other_data_has_no_layout(stored: Path) -> None:
    graph = siafu.load(stored)
    assert graph.replace(name="other").layout is not None
    assert graph.replace(train=graph.val).layout is None
    assert graph.with_bf16_features().layout is None


def test_overwriting_a_store_removes_its_layout(stored: Path) -> None:
    toy_graph(300).save(stored, overwrite=True)
    assert siafu.load(stored).layout is None


def test_the_layout_of_another_graph_is_refused(stored: Path, tmp_path: Path) -> None:
    toy_graph(seed=5).save(tmp_path / "other")
    shutil.copytree(stored / "layout", tmp_path / "other" / "layout")
    with pytest.raises(
        StoreError, match=r"is the layout of another graph than toy: make it again with 'siafu reorder"
    ):
        read_store(tmp_path / "other", verify=False)


@pytest.mark.parametrize("wrong", [0, -1, 210])
def test_an_order_that_does_not_name_each_vertex_once_is_refused(stored: Path, wrong: int) -> None:
    order = np.load(stored / "layout" / "order.npy")
    order[order == 7] = wrong
    _forge(stored, "order", order)
    with pytest.raises(StoreError, match="does not name each vertex once"):
        read_store(stored)


def _forge(store: Path, name: str, values: np.ndarray) -> None:
    """Put other values into an array of the layout, and make its checksums fit."""
    file = store / "layout" / f"{name}.npy"
    data = bytearray(file.read_bytes())
    data[128:] = values.tobytes()
    file.write_bytes(data)
    manifest = json.loads((store / "layout" / "graph.json").read_bytes())
    manifest["arrays"][name]["crc32"] = [zlib.crc32(values.tobytes())]
    del manifest["checksum"]
    (store / "layout" / "graph.json").write_bytes(sealed(manifest))


def test_a_layout_without_a_description_is_refused(stored: Path) -> None:
    manifest = json.loads((stored / "layout" / "graph.json").read_bytes())
    del manifest["layout"], manifest["checksum"]
    (stored / "layout" / "graph.json").write_bytes(sealed(manifest))
    with pytest.raises(StoreError, match="does not describe a layout"):
        read_store(stored)

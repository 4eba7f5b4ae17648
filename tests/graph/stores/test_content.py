"""A store that was tampered with is refused, though its checksums are right: nothing is read out of bounds."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siafu.base.errors import StoreError
from siafu.graph import Graph, StoreWriter, read_store, write_store
from siafu.graph.stores.manifest import sealed
from siafu.graph.stores.store import OPTIONAL, REQUIRED


def small_graph() -> Graph:
    return Graph.from_csr(
        [0, 2, 3, 3, 4],
        [1, 3, 0, 2],
        x=np.ones((4, 2)),
        y=[0, 1, -1, 1],
        train=[0],
        val=[1],
        test=[3],
        ids=np.array([b"a", b"b", b"c", b"d"]),
    )


def write_unchecked(path: Path, **arrays: Any) -> None:
    """A store with these arrays, whatever they hold, and checksums to match."""
    graph = small_graph()
    with StoreWriter(path) as store:
        for name in (*REQUIRED, *OPTIONAL):
            values = arrays.get(name, getattr(graph, name))
            if values is not None:
                store.array(name, values.dtype, values.shape[1:]).append(values)
        store.commit(name="forged", num_classes=2, symmetric=False)


def edit(store: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((store / "graph.json").read_text())
    change(manifest)
    (store / "graph.json").write_bytes(sealed(manifest))


def refusal(store: Path, *, verify: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        read_store(store, verify=verify)
    message = str(caught.value)
    assert str(store) in message
    assert "\n" not in message
    return message


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"indptr": ints(1, 2, 3, 3, 4)}, "indptr goes from 1 to 4 instead of 0 to 4"),
        ({"indptr": ints(0, 2, 3, 3, 3)}, "indptr goes from 0 to 3 instead of 0 to 4"),
        ({"indptr": ints(0, 2, 1, 3, 4)}, "the in-edges of vertex 1"),
        ({"indptr": ints(0, 2, 1 << 40, 3, 4)}, "the in-edges of vertex 1"),
        ({"indptr": ints(0, -(1 << 40), 3, 3, 4)}, "the in-edges of vertex 0"),
        ({"indices": ints(1, 3, 0, 4)}, "the in-edges of vertex 3"),
        ({"indices": ints(1, 3, 1 << 40, 2)}, "the in-edges of vertex 1"),
        ({"indices": ints(-1, 3, 0, 2).astype(np.int32)}, "the in-edges of vertex 0"),
        ({"indices": ints(3, 1, 0, 2).astype(np.int32)}, "the in-edges of vertex 0"),
        ({"y": ints(0, 2, 0, 0)}, "labels go from 0 to 2 instead of -1 to 1"),
        ({"y": ints(0, -2, 0, 0)}, "labels go from -2 to 0 instead of -1 to 1"),
        ({"y": np.full((4, 2), 7, np.uint8)}, "labels go from 7 to 7 instead of 0 to 1"),
        ({"train": ints(4)}, "train does not list ascending ids"),
        ({"val": ints(-1, 1)}, "val does not list ascending ids"),
        ({"test": ints(3, 2)}, "test does not list ascending ids"),
        ({"test": ints(2, 2)}, "test does not list ascending ids"),
        ({"test": ints(0, 3)}, "vertex 0 is in both train and test"),
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    write_unchecked(tmp_path / "s", **arrays)
    assert message in refusal(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("indptr", np.zeros(5, np.float64)),
        ("indptr", np.zeros((5, 1), np.int64)),
        ("indices", np.zeros(4, np.uint16)),
        ("indices", np.zeros(4, ">i4")),
        ("edge_weight", np.zeros(4, np.float64)),
        ("edge_weight", np.zeros(3, np.float32)),
        ("x", np.zeros((4, 2), np.float16)),
        ("x", np.zeros((3, 2), np.float32)),
        ("x", np.zeros(4, np.float32)),
        ("y", np.zeros(4, np.uint8)),
        ("y", np.zeros((4, 2), np.int64)),
        ("y", np.zeros((4, 3), np.uint8)),
        ("train", np.zeros((1, 1), np.int64)),
        ("train", np.zeros(5, np.int64)),
        ("ids", np.array(["a", "b", "c", "d"])),
        ("ids", np.array([b"a", b"b", b"c"])),
    ],
)
def test_arrays_of_another_form_are_refused_even_without_checksums(
    tmp_path: Path, name: str, values: np.ndarray[Any, Any]
) -> None:
    write_unchecked(tmp_path / "s", **{name: values})
    refusal(tmp_path / "s", verify=False)


@pytest.mark.parametrize("shape", [[-4], [-1, -4], [4.0], ["4"], 4, None, [True], [1 << 70]])
def test_a_shape_that_is_none_is_refused(tmp_path: Path, shape: object) -> None:
    write_unchecked(tmp_path / "s")
    edit(tmp_path / "s", lambda manifest: manifest["arrays"]["indices"].update(shape=shape))
    refusal(tmp_path / "s")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 5),
        ("name", None),
        ("num_classes", "2"),
        ("num_classes", -1),
        ("num_classes", 1 << 40),
        ("num_vertices", "4"),
        ("num_edges", True),
        ("symmetric", 1),
        ("arrays", []),
        ("arrays", {}),
        ("arrays", {"indptr": 5, "indices": 5}),
        ("version", True),
        ("version", 0),
        ("version", -1),
    ],
)
def test_a_field_of_another_kind_is_refused(tmp_path: Path, field: str, value: object) -> None:
    write_unchecked(tmp_path / "s")
    edit(tmp_path / "s", lambda manifest: manifest.update({field: value}))
    refusal(tmp_path / "s")


@pytest.mark.parametrize("dtype", ["O", "<V8", "i8,i8", 5, ["<i8"], "|S0", "|S9999999999"])
def test_a_type_of_another_kind_is_refused(tmp_path: Path, dtype: object) -> None:
    write_unchecked(tmp_path / "s")
    edit(tmp_path / "s", lambda manifest: manifest["arrays"]["ids"].update(dtype=dtype))
    refusal(tmp_path / "s")


@pytest.mark.parametrize("file", ["graph.json", "x.npy"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, file: str, make: Callable[[Path], None]) -> None:
    write_unchecked(tmp_path / "s")
    (tmp_path / "s" / file).unlink()
    make(tmp_path / "s" / file)
    assert f"{file} is not a file" in refusal(tmp_path / "s")


def test_a_deeply_nested_manifest_is_refused(tmp_path: Path) -> None:
    write_unchecked(tmp_path / "s")
    (tmp_path / "s" / "graph.json").write_text("[" * 100_000)
    assert "not readable JSON" in refusal(tmp_path / "s")


def test_a_multi_label_graph_is_read_back(tmp_path: Path) -> None:
    labels = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]], np.uint8)
    write_store(Graph.from_edges([0, 1], [1, 3], num_vertices=4, y=labels), tmp_path / "s")
    np.testing.assert_array_equal(read_store(tmp_path / "s").y, labels)

"""Labels that are classes, and numbers that are not."""

from pathlib import Path

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.classes import ClassCount
from siafu.graph.datasets.bundle import read_bundle
from tests.graph.imports import imported

CODES = [0, 1_000_000, 0, 1_000_000]
YEARS = [2010 + k % 11 for k in range(100)]


def graph_of(labels: list[int], num_classes: int | None = None) -> Graph:
    return Graph.from_csr([0] * (len(labels) + 1), [], y=labels, num_classes=num_classes)


def edges_file(folder: Path) -> Path:
    (folder / "edges.csv").write_text("src,dst\n0,1\n1,2\n2,3\n")
    return folder / "edges.csv"


@pytest.mark.parametrize("labels", [CODES, YEARS])
def test_numbers_that_are_no_classes_are_refused(labels: list[int]) -> None:
    with pytest.raises(
        BadInput, match="number the classes from 0 up, or say that there are so many"
    ) as caught:
        graph_of(labels)
    assert f"num_classes={max(labels) + 1}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "labels", [[0, 5], [3], [0, 999], [-1, -1], list(range(5000)), list(range(0, 5000, 16))]
)
def test_classes_may_be_unused(labels: list[int]) -> None:
    assert graph_of(labels).num_classes == max(labels) + 1


def test_as_many_classes_as_the_user_says_are_taken() -> None:
    assert graph_of(CODES, num_classes=1_000_001).num_classes == 1_000_001


def test_labels_in_a_column_beside_the_edges_are_looked_at(tmp_path: Path) -> None:
    source = edges_file(tmp_path)
    (tmp_path / "y.csv").write_text("".join(f"{label}\n" for label in CODES))
    with pytest.raises(BadInput, match=r"labels in .*y\.csv: y has class 1000000") as caught:
        imported(source, labels=tmp_path / "y.csv")
    assert "--num-classes 1000001" in str(caught.value)
    assert imported(source, labels=tmp_path / "y.csv", num_classes=1_000_001).num_classes == 1_000_001


def test_labels_of_a_table_of_vertices_are_looked_at(tmp_path: Path) -> None:
    source = edges_file(tmp_path)
    rows = "".join(f"{vertex},{label}\n" for vertex, label in enumerate(CODES))
    (tmp_path / "vertices.csv").write_text(f"id,label\n{rows}")
    with pytest.raises(BadInput, match="y has class 1000000"):
        imported(source, vertices=tmp_path / "vertices.csv")


def test_labels_of_a_bundle_are_looked_at(tmp_path: Path) -> None:
    arrays = {"num_nodes": 4, "src": [0], "dst": [1], "y": CODES, "split": [0, 1, 2, 2]}
    np.savez(tmp_path / "codes.npz", **arrays)
    with pytest.raises(BadInput, match="y has class 1000000"):
        read_bundle(tmp_path / "codes.npz")
    np.savez(tmp_path / "told.npz", **arrays, num_classes=1_000_001)
    assert read_bundle(tmp_path / "told.npz").num_classes == 1_000_001


def test_an_archive_may_say_how_many_classes_there_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "told.npz", num_nodes=4, src=[0], dst=[1], y=[0, 1, 0, 1], num_classes=7)
    assert imported(tmp_path / "told.npz").num_classes == 7


def test_labels_that_float32_rounds_are_refused(tmp_path: Path) -> None:
    source = edges_file(tmp_path)
    (tmp_path / "y.csv").write_text("16777217\n0\n0\n0\n")
    with pytest.raises(BadInput, match="where float32 is no longer exact"):
        imported(source, labels=tmp_path / "y.csv", num_classes=20_000_000)


def test_classes_are_counted_over_all_blocks() -> None:
    classes = ClassCount(None, num_vertices=4000)
    for first in range(0, 4000, 1000):
        classes.add(np.arange(first, first + 1000))
    assert classes.total() == 4000

"""Columns train_mask, val_mask and test_mask of a table of vertices are a split, as PyG's graphs have it."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import siafu
from siafu.base.errors import BadInput
from siafu.graph.importing.importer import ImportOptions, import_graph
from siafu.graph.importing.inputs import InputOptions

_ROWS = [
    ("a", 0, 1.5, True, False, False),
    ("b", 1, 2.5, False, True, False),
    ("c", 0, 3.5, False, False, True),
]
_NAMES = ["id", "label", "age", "train_mask", "val_mask", "test_mask"]


def _imported(vertices: Path) -> "siafu.Graph":
    edges = vertices.with_name("edges.csv")
    edges.write_text("src,dst\na,b\nb,c\nc,d\n")
    target = vertices.with_name("made.store")
    done = import_graph(edges, target, ImportOptions(input=InputOptions(vertices=vertices), overwrite=True))
    assert done.feature_names == ("age",)
    assert not done.ignored
    return siafu.load(target)


def _parts(graph: "siafu.Graph") -> list[list[bytes]]:
    assert graph.ids is not None
    return [
        [bytes(graph.ids[each]) for each in rows]
        for rows in (graph.train, graph.val, graph.test)
        if rows is not None
    ]


def _written(path: Path, rows: list[tuple[object, ...]], names: list[str] = _NAMES) -> Path:
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


def test_masks_of_booleans_in_text_are_a_split(tmp_path: Path) -> None:
    rows = [*_ROWS, ("d", 1, 4.5, "", "False", "false")]
    assert _parts(_imported(_written(tmp_path / "people.csv", rows))) == [[b"a"], [b"b"], [b"c"]]


def test_masks_of_zeros_and_ones_are_a_split(tmp_path: Path) -> None:
    rows = [(*row[:3], *map(int, row[3:])) for row in [*_ROWS, ("d", 1, 4.5, True, False, False)]]
    assert _parts(_imported(_written(tmp_path / "people.csv", rows))) == [[b"a", b"d"], [b"b"], [b"c"]]


def test_masks_in_parquet_are_a_split(tmp_path: Path) -> None:
    columns = dict(zip(_NAMES, zip(*_ROWS, ("d", 1, 4.5, False, True, False), strict=True), strict=True))
    parquet.write_table(pa.table(columns), tmp_path / "people.parquet")
    assert _parts(_imported(tmp_path / "people.parquet")) == [[b"a"], [b"b", b"d"], [b"c"]]


def test_a_vertex_in_two_masks_is_refused(tmp_path: Path) -> None:
    rows = [*_ROWS, ("d", 1, 4.5, True, False, True)]
    with pytest.raises(BadInput, match="line 5, is in both train and test"):
        _imported(_written(tmp_path / "people.csv", rows))


def test_a_mask_of_other_words_is_refused(tmp_path: Path) -> None:
    rows = [*_ROWS, ("d", 1, 4.5, "perhaps", False, False)]
    with pytest.raises(BadInput, match="has 'perhaps' in the mask of train: write true or false"):
        _imported(_written(tmp_path / "people.csv", rows))

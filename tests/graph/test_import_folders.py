import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from siafu.base.errors import BadInput
from tests.graph.imports import edge_set, imported


def write_gzip(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def ogb(tmp_path: Path) -> Path:
    folder = tmp_path / "ogbn_toy"
    write_gzip(folder / "raw" / "edge.csv.gz", "0,1\n1,2\n3,0\n")
    write_gzip(folder / "raw" / "num-node-list.csv.gz", "4\n")
    write_gzip(folder / "raw" / "node-feat.csv.gz", "0.5,1\n-1.5,2e-1\n0,0\n3,4\n")
    write_gzip(folder / "raw" / "node-label.csv.gz", "1\n0\nnan\n2\n")
    for part, ids in {"train": "0\n", "valid": "1\n", "test": "3\n"}.items():
        write_gzip(folder / "split" / "time" / f"{part}.csv.gz", ids)
    return folder


def test_an_ogb_folder_of_text_is_read(ogb: Path) -> None:
    graph = imported(ogb)
    assert edge_set(graph) == [(0, 1), (1, 2), (3, 0)]
    assert graph.x is not None and graph.y is not None
    assert np.allclose(graph.x, [[0.5, 1], [-1.5, 0.2], [0, 0], [3, 4]])
    assert graph.y.tolist() == [1, 0, -1, 2]
    assert [part.tolist() for part in (graph.train, graph.val, graph.test) if part is not None] == [
        [0],
        [1],
        [3],
    ]
    assert graph.num_classes == 3


def test_an_ogb_folder_of_arrays_is_read(ogb: Path) -> None:
    text = imported(ogb)
    raw = ogb / "raw"
    for file in raw.iterdir():
        file.unlink()
    np.savez(
        raw / "data.npz",
        edge_index=np.array([[0, 1, 3], [1, 2, 0]]),
        num_nodes_list=np.array([4]),
        node_feat=text.x,
    )
    np.savez(raw / "node-label.npz", node_label=np.array([[1.0], [0.0], [np.nan], [2.0]]))
    arrays = imported(ogb)
    for name in ("indptr", "indices", "x", "y", "train", "val", "test"):
        assert np.array_equal(getattr(text, name), getattr(arrays, name)), name


def test_labels_in_several_columns_are_any_number_of_labels(ogb: Path) -> None:
    write_gzip(ogb / "raw" / "node-label.csv.gz", "1,0,1\n0,0,0\n1,1,1\n0,1,0\n")
    graph = imported(ogb)
    assert graph.multi_label
    assert graph.y is not None
    assert graph.y.tolist() == [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]


def test_one_of_several_ogb_splits_must_be_chosen(ogb: Path) -> None:
    for part in ("train", "valid", "test"):
        write_gzip(ogb / "split" / "random" / f"{part}.csv.gz", f"{len(part) - 4}\n")
    with pytest.raises(BadInput, match="has the splits random, time: choose one with --split"):
        imported(ogb)
    with pytest.raises(BadInput, match="has no split 'space': it has random, time"):
        imported(ogb, split="space")
    train = imported(ogb, split="time").train
    assert train is not None
    assert train.tolist() == [0]


def test_too_few_ogb_labels_are_refused(ogb: Path) -> None:
    write_gzip(ogb / "raw" / "node-label.csv.gz", "1\n0\n")
    with pytest.raises(BadInput, match="there are 2 rows; give one for each of the 4 vertices"):
        imported(ogb)


@pytest.fixture
def graphbolt(tmp_path: Path) -> Path:
    folder = tmp_path / "bolt"
    folder.mkdir()
    np.save(folder / "edges.npy", np.array([[0, 1, 3], [1, 2, 0]]))
    np.save(folder / "feat.npy", np.arange(8.0).reshape(4, 2))
    for part, (seed, label) in {"train": (0, 1), "val": (1, 0), "test": (3, 2)}.items():
        np.save(folder / f"{part}.npy", np.array([seed], np.int32))
        np.save(folder / f"{part}_y.npy", np.array([label]))

    def labelled(part: str) -> list[dict[str, Any]]:
        return [
            {
                "data": [
                    {"name": "seeds", "format": "numpy", "path": f"{part}.npy"},
                    {"name": "labels", "format": "numpy", "path": f"{part}_y.npy"},
                ]
            }
        ]

    metadata = {
        "dataset_name": "toy",
        "graph": {"nodes": [{"num": 4}], "edges": [{"format": "numpy", "path": "edges.npy"}]},
        "feature_data": [{"domain": "node", "name": "feat", "format": "numpy", "path": "feat.npy"}],
        "tasks": [
            {
                "num_classes": 9,
                "train_set": labelled("train"),
                "validation_set": labelled("val"),
                "test_set": labelled("test"),
            }
        ],
    }
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    return folder


def change(folder: Path, **parts: Any) -> None:
    path = folder / "metadata.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | parts))


def test_a_graphbolt_folder_is_read(graphbolt: Path) -> None:
    graph = imported(graphbolt)
    assert edge_set(graph) == [(0, 1), (1, 2), (3, 0)]
    assert graph.x is not None and graph.y is not None
    assert graph.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert graph.y.tolist() == [1, 0, -1, 2]
    assert [part.tolist() for part in (graph.train, graph.val, graph.test) if part is not None] == [
        [0],
        [1],
        [3],
    ]
    assert graph.num_classes == 9


def test_graphbolt_edges_may_be_in_fortran_order(graphbolt: Path) -> None:
    np.save(graphbolt / "turned.npy", np.array([[0, 1], [1, 2], [3, 0]]).T)
    change(graphbolt, graph={"nodes": [{"num": 4}], "edges": [{"format": "numpy", "path": "turned.npy"}]})
    assert edge_set(imported(graphbolt)) == [(0, 1), (1, 2), (3, 0)]


def test_graphbolt_edges_may_be_text(graphbolt: Path) -> None:
    (graphbolt / "edges.csv").write_text("0,1\n1,2\n3,0\n")
    change(graphbolt, graph={"nodes": [{"num": 4}], "edges": [{"format": "csv", "path": "edges.csv"}]})
    assert edge_set(imported(graphbolt)) == [(0, 1), (1, 2), (3, 0)]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"graph": {"nodes": [{"num": 1}, {"num": 2}], "edges": []}}, "has 2 types of nodes"),
        ({"graph": {}}, "has no 'nodes'"),
        ({"graph": {"nodes": [{"num": 4}], "edges": [{"format": "numpy", "path": "no.npy"}]}}, "no file"),
        (
            {"graph": {"nodes": [{"num": 4}], "edges": [{"format": "torch", "path": "e.pt"}]}},
            "format 'torch'",
        ),
        (
            {"graph": {"nodes": [{"num": 3}], "edges": [{"format": "numpy", "path": "edges.npy"}]}},
            "out of range",
        ),
    ],
)
def test_graphbolt_folders_we_cannot_read_are_refused(
    graphbolt: Path, parts: dict[str, Any], message: str
) -> None:
    change(graphbolt, feature_data=[], tasks=[], **parts)
    with pytest.raises(BadInput) as error:
        imported(graphbolt)
    assert message in str(error.value)


def test_without_pyyaml_the_error_says_how_to_get_it(
    graphbolt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(BadInput, match="needs PyYAML: pip install pyyaml"):
        imported(graphbolt)


def test_a_folder_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(BadInput, match="is no folder that siafu reads"):
        imported(folder)


def test_a_store_need_not_be_imported(ogb: Path) -> None:
    imported(ogb)
    with pytest.raises(BadInput, match="is a store already"):
        imported(ogb.parent / "imported.store")


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        imported(folder, **options)
    message = str(caught.value)
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{" * 20_000, "nested more than 64 deep"),
        (
            "a: &a [1, 1]\n"
            + "\n".join(f"{k}: &{k} [*{k - 1 or 'a'}, *{k - 1 or 'a'}]" for k in range(1, 30)),
            "values",
        ),
        ("graph: [\n", "is not YAML that siafu reads"),
        ("[]", "it is [] instead of a mapping"),
        ("graph: 5", "graph is 5 instead of a mapping"),
    ],
)
def test_graphbolt_metadata_that_cannot_be_is_refused(graphbolt: Path, text: str, why: str) -> None:
    (graphbolt / "metadata.yaml").write_text(text)
    assert why in refusal(graphbolt)


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("nodes", [{"num": "four"}], "num is 'four': give a whole number"),
        ("nodes", [{"num": -4}], "num is -4: give a whole number"),
        ("nodes", [{"num": 2**39}], "far more vertices than"),
        ("nodes", {"num": 4}, "nodes is {'num': 4} instead of a list"),
        ("nodes", [4], "an entry of nodes is 4 instead of a mapping"),
        ("edges", [{"format": "numpy", "path": 7}], "path is 7 instead of a file's name"),
    ],
)
def test_graphbolt_metadata_of_the_wrong_kind_is_refused(
    graphbolt: Path, part: str, value: Any, why: str
) -> None:
    graph = {"nodes": [{"num": 4}], "edges": [{"format": "numpy", "path": "edges.npy"}]}
    change(graphbolt, graph=graph | {part: value}, feature_data=[], tasks=[])
    assert why in refusal(graphbolt)


@pytest.mark.parametrize("name", ["../edges.npy", "sub/../../edges.npy", "{absolute}", "a\0b"])
def test_graphbolt_files_outside_of_the_folder_are_refused(graphbolt: Path, name: str) -> None:
    outside = graphbolt.parent / "edges.npy"
    (graphbolt / "edges.npy").rename(outside)
    (graphbolt / "sub").mkdir()
    edges = [{"format": "numpy", "path": name.format(absolute=outside)}]
    change(graphbolt, graph={"nodes": [{"num": 4}], "edges": edges})
    message = refusal(graphbolt)
    assert "is not in" in message and "metadata.yaml names it" in message


def test_a_link_out_of_a_graphbolt_folder_is_refused(graphbolt: Path) -> None:
    outside = graphbolt.parent / "elsewhere.npy"
    (graphbolt / "edges.npy").rename(outside)
    (graphbolt / "edges.npy").symlink_to(outside)
    assert "outside of the folder" in refusal(graphbolt)


def test_a_link_within_a_folder_is_followed(graphbolt: Path) -> None:
    (graphbolt / "edges.npy").rename(graphbolt / "real.npy")
    (graphbolt / "edges.npy").symlink_to("real.npy")
    assert edge_set(imported(graphbolt)) == [(0, 1), (1, 2), (3, 0)]


def test_a_link_to_a_folder_is_that_folder(graphbolt: Path) -> None:
    (graphbolt.parent / "link").symlink_to(graphbolt)
    assert edge_set(imported(graphbolt.parent / "link")) == [(0, 1), (1, 2), (3, 0)]


@pytest.mark.parametrize("name", ["raw/edge.csv.gz", "raw/node-label.csv.gz", "split/time/train.csv.gz"])
def test_a_link_out_of_an_ogb_folder_is_refused(ogb: Path, name: str) -> None:
    outside = ogb.parent / "elsewhere.gz"
    (ogb / name).rename(outside)
    (ogb / name).symlink_to(outside)
    assert "outside of the folder" in refusal(ogb)


def test_an_ogb_folder_whose_raw_folder_is_elsewhere_is_refused(ogb: Path) -> None:
    (ogb / "raw").rename(ogb.parent / "elsewhere")
    (ogb / "raw").symlink_to(ogb.parent / "elsewhere")
    assert "outside of the folder" in refusal(ogb)


@pytest.mark.parametrize(
    ("count", "why"),
    [
        ("-4", "holds -4"),
        ("4\n5", "holds 2 numbers"),
        ("", "is empty"),
        ("4000000000", "far more vertices than"),
    ],
)
def test_a_count_of_ogb_vertices_that_cannot_be_is_refused(ogb: Path, count: str, why: str) -> None:
    write_gzip(ogb / "raw" / "num-node-list.csv.gz", count)
    assert why in refusal(ogb)


def test_the_first_row_of_an_ogb_file_is_no_header(ogb: Path) -> None:
    write_gzip(ogb / "split" / "time" / "train.csv.gz", "O\n1\n")
    assert "line 1" in refusal(ogb)


def test_labels_of_a_graphbolt_set_are_whole_numbers(graphbolt: Path) -> None:
    np.save(graphbolt / "train_y.npy", np.array([0.5]))
    assert "y holds fractions" in refusal(graphbolt)


def test_a_row_of_features_that_is_longer_than_the_others_is_refused(ogb: Path) -> None:
    write_gzip(ogb / "raw" / "node-feat.csv.gz", "0.5,1\n-1.5,0,2\n0,0\n3,4\n")
    assert "line 2: '2' stands after the last of the 2 columns" in refusal(ogb)


def test_a_delimiter_at_a_rows_end_is_no_further_column(ogb: Path) -> None:
    write_gzip(ogb / "raw" / "node-feat.csv.gz", "0.5,1\n-1.5,0.2,\n0,0 \n3,4\n")
    graph = imported(ogb)
    assert graph.x is not None
    assert graph.x.shape == (4, 2)


def test_a_graphbolt_set_with_two_entries_of_one_name_is_refused(graphbolt: Path) -> None:
    entries = [
        {"name": name, "format": "numpy", "path": f"{path}.npy"}
        for name, path in (("seeds", "train"), ("labels", "train_y"), ("labels", "val_y"))
    ]
    change(graphbolt, tasks=[{"num_classes": 9, "train_set": [{"data": entries}]}])
    assert "train_set has two entries of one name" in refusal(graphbolt)

"""`siafu predict`."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

import siafu as package
from siafu.report.files.predictions import Predictions
from tests.cli.command import Siafu
from tests.toys import multi_label_graph, toy_graph


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_predictions_carry_the_original_ids(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=3, out="run")
    assert siafu("predict", "run", output="p.csv").code == 0
    rows = rows_in(Path("p.csv"))
    expected = package.Run.load("run").predict(package.load(store)).tolist()
    assert [row["id"] for row in rows] == [f"v{number}" for number in range(210)]
    assert [int(row["prediction"]) for row in rows] == expected


def test_predictions_of_a_split_with_probabilities(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=3, out="run")
    siafu("predict", "run", output="p.csv", rows="test", probabilities=True)
    rows = rows_in(Path("p.csv"))
    assert [row["id"] for row in rows] == [f"v{number}" for number in package.load(store).test]
    for row in rows:
        chances = [float(row[f"probability_{k}"]) for k in range(3)]
        assert sum(chances) == pytest.approx(1, abs=1e-5)
        assert int(row["prediction"]) == int(np.argmax(chances))


def test_predictions_carry_the_names_of_classes(siafu: Siafu, tmp_path: Path) -> None:
    toy_graph().replace(class_names=("ant", "bee", "wasp")).save(tmp_path / "toy")
    siafu("train", "toy", epochs=1, out="run")
    siafu("predict", "run", output="p.csv", probabilities=True)
    for row in rows_in(Path("p.csv")):
        chances = {name: float(row[f"probability_{name}"]) for name in ("ant", "bee", "wasp")}
        assert chances[row["prediction"]] == max(chances.values())


def test_without_a_file_predictions_go_to_stdout(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=1, out="run")
    lines = siafu("predict", "run").out.splitlines()
    assert lines[0] == "id,prediction"
    assert len(lines) == 211


def test_vertices_without_names_are_numbered(siafu: Siafu, tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy")
    siafu("train", "toy", epochs=1, out="run")
    siafu("predict", "run", output="p.csv", rows="val")
    assert [int(row["id"]) for row in rows_in(Path("p.csv"))] == toy_graph().val.tolist()


def test_parquet_says_the_same_as_csv(siafu: Siafu, store: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    siafu("train", store, epochs=1, out="run")
    for name in ("p.csv", "p.parquet"):
        siafu("predict", "run", output=name, probabilities=True)
    table = parquet.read_table("p.parquet").to_pydict()
    rows = rows_in(Path("p.csv"))
    assert table["id"] == [row["id"] for row in rows]
    assert table["prediction"] == [int(row["prediction"]) for row in rows]
    assert table["probability_2"] == pytest.approx([float(row["probability_2"]) for row in rows], rel=1e-5)


@pytest.mark.slow
def test_several_labels_of_a_vertex_are_listed(siafu: Siafu, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    multi_label_graph().save(tmp_path / "labels")
    siafu("train", "labels", epochs=30, lr=0.1, out="run")
    for name in ("p.csv", "p.parquet"):
        siafu("predict", "run", output=name)
    said = package.Run.load("run").predict(multi_label_graph()).numpy()
    expected = [np.flatnonzero(row).tolist() for row in said]
    assert [[int(k) for k in row["prediction"].split()] for row in rows_in(Path("p.csv"))] == expected
    assert parquet.read_table("p.parquet").to_pydict()["prediction"] == expected


def test_parquet_without_pyarrow_says_how_to_get_it(
    siafu: Siafu, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    siafu("train", store, epochs=1, out="run")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert "siafu[parquet]" in siafu.refused("predict", "run", output="p.parquet")
    assert not Path("p.parquet").exists()


@pytest.mark.parametrize(
    ("options", "named"), [({"rows": "some"}, "--rows"), ({"output": "p.xlsx"}, ".csv or .parquet")]
)
def test_a_bad_option_is_one_clear_line(siafu: Siafu, options: dict[str, str], named: str) -> None:
    assert named in siafu.refused("predict", "run", **options)


def test_rows_of_a_split_that_is_not_there_are_refused(siafu: Siafu, tmp_path: Path) -> None:
    toy_graph(val=None).save(tmp_path / "toy")
    siafu("train", "toy", epochs=1, out="run")
    assert "no val split" in siafu.refused("predict", "run", rows="val")


def test_a_file_of_unknown_kind_is_refused() -> None:
    with pytest.raises(package.SiafuError, match="csv"):
        Predictions(np.arange(2), np.arange(2)).write(Path("p.txt"))


@pytest.mark.slow
def test_rows_of_a_hidden_layer(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=2, hidden=5, out="run")
    assert siafu("predict", "run", output="h.csv", hidden=1, rows="test").code == 0
    graph, run = package.load(store), package.Run.load("run")
    found = np.array([[float(row[f"h{k}"]) for k in range(5)] for row in rows_in(Path("h.csv"))])
    with torch.no_grad():
        wanted = torch.relu(run.model.convs[0](graph, package.nn.features(graph)))[graph.test]
    assert [row["id"] for row in rows_in(Path("h.csv"))] == [f"v{number}" for number in graph.test]
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)
    siafu("predict", "run", output="h.parquet", hidden="convs.1")
    assert parquet.read_table("h.parquet").column_names == ["id", "h0", "h1", "h2"]
    for bad, words in (
        ("2", "1 hidden layer: give"),
        ("0", "1 hidden layer: give"),
        ("lin", "no module 'lin'"),
    ):
        refused = siafu("predict", "run", hidden=bad)
        assert refused.code == 2 and words in refused.err


def test_a_run_on_samples_is_asked_for_on_the_command_line(siafu: Siafu, store: Path) -> None:
    assert siafu("train", store, epochs=2, out="run", mode="sampled", fanout="3,2", batch=16).code == 0
    assert package.Run.load("run").summary()["batch"] == 16
    told = siafu.refused("train", store, epochs=2, mode="sampled", fanout="3,2", lambdas="local")
    assert "lambdas is local, and mode sampled updates weights in one process and has no Lambdas" in told

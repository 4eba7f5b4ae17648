"""`siafu evaluate`."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Siafu
from tests.toys import toy_graph


@pytest.mark.slow
def test_a_saved_run_is_as_good_as_it_said(siafu: Siafu, store: Path) -> None:
    trained = siafu("train", store, epochs=5, out="run", json=True).json()
    found = siafu("evaluate", "run", json=True).json()
    for split in ("train", "val", "test"):
        assert found[f"{split}_accuracy"] == trained[f"{split}_accuracy"]
    assert found["test_rows"] == 126


@pytest.mark.slow
def test_a_split_that_was_drawn_is_drawn_again(siafu: Siafu, store: Path) -> None:
    drawn = {"split": "stratified:50/25/25", "split_seed": 3, "hidden": 8, "out": "run", "json": True}
    trained = siafu("train", store, epochs=2, **drawn).json()
    found = siafu("evaluate", "run", json=True).json()
    test = toy_graph().split(0.5, 0.25, 0.25, seed=3, stratified=True).test
    assert test is not None
    assert found["test_rows"] == len(test) != 126
    assert found["test_accuracy"] == trained["test_accuracy"]
    assert siafu("train", store, "--resume", epochs=4, **drawn).code == 0
    again = siafu.refused("train", store, "--resume", epochs=5, **drawn | {"split_seed": 4})
    assert "split_seed was 3, now 4" in again


def test_the_share_of_a_class_that_most_vertices_are_of_stands_beside_the_accuracy(
    siafu: Siafu, tmp_path: Path
) -> None:
    most = np.where(np.arange(210) % 5 == 0, np.arange(210) % 3, 0)
    toy_graph(y=most).save(tmp_path / "uneven")
    siafu("train", "uneven", epochs=2, out="run")
    line = siafu("evaluate", "run").out.splitlines()[-1]
    test = most[toy_graph().test]
    assert line.endswith(f"126 vertices, {100 * (test == 0).mean():.2f} % of them of class 0")


def test_people_get_a_line_for_each_split(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=2, out="run")
    lines = siafu("evaluate", "run").out.splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["train", "val", "test"]


def test_a_run_is_evaluated_on_another_graph(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    trained = siafu("train", store, epochs=5, out="run", json=True).json()
    toy_graph(seed=7, name="other").save(tmp_path / "other")
    found = siafu("evaluate", "run", "other", json=True).json()
    assert found["dataset"] == "other"
    assert found["test_accuracy"] != trained["test_accuracy"]


def test_classes_of_other_names_than_the_runs_are_told(siafu: Siafu, tmp_path: Path) -> None:
    toy_graph().replace(class_names=("ant", "bee", "cat")).save(tmp_path / "named")
    toy_graph().save(tmp_path / "plain")
    siafu("train", "named", epochs=1, out="run")
    assert (
        "classes of the run are ant, bee, cat; those of toy have no names"
        in siafu("evaluate", "run", "plain").err
    )
    assert siafu("evaluate", "run", "named").err == ""


def test_imported_columns_are_known_by_name_until_prediction(siafu: Siafu) -> None:
    Path("edges.csv").write_text("src,dst\n0,1\n1,2\n2,3\n")
    Path("one.csv").write_text("id,label,age,height\n0,0,30,1.5\n1,1,40,1.6\n2,0,50,1.9\n3,1,20,1.8\n")
    Path("two.csv").write_text("id,height,age,label\n0,1.5,30,0\n1,1.6,40,1\n2,1.9,50,0\n3,1.8,20,1\n")
    for name in ("one", "two"):
        siafu("import", "edges.csv", vertices=f"{name}.csv", split="random:50/25/25", output=f"{name}.store")
    assert "features    2 a vertex (height, age)" in siafu("info", "two.store").out
    siafu("train", "one.store", epochs=2, out="run")
    other = siafu("evaluate", "run", "two.store")
    assert "they are taken by their names" in other.err
    assert other.out.splitlines()[1:] == siafu("evaluate", "run").out.splitlines()[1:]


def test_a_graph_of_other_width_is_one_clear_line(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    siafu("train", store, epochs=2, out="run")
    graph = toy_graph()
    graph.replace(x=graph.x[:, :3].copy()).save(tmp_path / "narrow")
    assert "3 features" in siafu.refused("evaluate", "run", "narrow")


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_no_run_is_one_clear_line(siafu: Siafu, command: str) -> None:
    assert "no run at nowhere" in siafu.refused(command, "nowhere")


def test_a_mistyped_run_is_told_the_nearest_and_never_itself(siafu: Siafu) -> None:
    Path("shop.run").mkdir()
    assert "no run at shop.rnu: did you mean shop.run?" in siafu.refused("predict", "shop.rnu")
    assert "did you mean" not in siafu.refused("predict", "shop.run")


def test_a_run_of_a_graph_in_memory_needs_a_dataset(siafu: Siafu) -> None:
    import siafu as package

    graph = toy_graph()
    package.train(graph, package.nn.GCN(8, 4, 2, 3), epochs=1, out="run")
    assert "name the dataset" in siafu.refused("evaluate", "run")


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_flipped_bit_in_the_weights_is_one_clear_line(siafu: Siafu, store: Path, command: str) -> None:
    siafu("train", store, epochs=2, out="run")
    weights = Path("run/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "run/model.safetensors is corrupted (its checksum is wrong)" in siafu.refused(command, "run")

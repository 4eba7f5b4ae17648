from pathlib import Path

import pytest

from tests.cli.command import Siafu
from tests.embedding.knowledge import SMALL, write_families
from tests.toys import toy_graph


@pytest.fixture
def kg(siafu: Siafu, tmp_path: Path) -> Path:
    folder = write_families(tmp_path / "families")
    assert siafu("import", folder, output=tmp_path / "kg.store").code == 0
    return tmp_path / "kg.store"


@pytest.mark.slow
def test_embeddings_are_learnt_and_asked(siafu: Siafu, kg: Path, tmp_path: Path) -> None:
    ended = siafu("embed", kg, out=tmp_path / "kg.run", json=True, **{**SMALL, "epochs": 10})
    assert ended.code == 0, ended
    assert ended.json()["test_mrr"] > 0.2
    assert "validation: filtered MRR" in ended.err
    asked = {"head": "member 3", "relation": "sibling of", "top": 5, "json": True}
    answers = siafu("embed", "predict", tmp_path / "kg.run", **asked).json()["answers"]
    assert len(answers) == 5
    assert all(each["entity"].startswith("member ") for each in answers)
    new = siafu("embed", "predict", tmp_path / "kg.run", new=True, **asked).json()["answers"]
    known = {f"member {k}" for k in range(10)} - {"member 3"}
    assert not known & {each["entity"] for each in new}
    near = siafu("embed", "neighbours", tmp_path / "kg.run", "member 3", top=3, json=True).json()["answers"]
    assert len(near) == 3 and near[0]["cosine"] >= near[-1]["cosine"]


def test_unknown_names_are_told_with_one_that_is_like_them(siafu: Siafu, kg: Path, tmp_path: Path) -> None:
    siafu("embed", kg, out=tmp_path / "kg.run", **SMALL)
    line = siafu.refused("embed", "predict", tmp_path / "kg.run", head="membr 3", relation="sibling of")
    assert "no entity 'membr 3': did you mean 'member 3'" in line
    line = siafu.refused("embed", "predict", tmp_path / "kg.run", head="member 3", relation="brother")
    assert "no relation 'brother'" in line
    line = siafu.refused("embed", "predict", tmp_path / "kg.run", relation="sibling of")
    assert "give a head or a tail" in line
    line = siafu.refused("embed", "predict", tmp_path / "kg.run", head="member 3")
    assert "give a relation (--relation): there are 'sibling of', 'rival of'" in line


def test_a_mistyped_command_is_not_taken_for_a_store(siafu: Siafu) -> None:
    line = siafu.refused("embed", "neighbors", "kg.run", "city_5", "--top", "3")
    assert "no command or store 'neighbors': did you mean 'siafu embed neighbours'?" in line


def test_a_file_of_triples_is_to_be_imported_first(siafu: Siafu, tmp_path: Path) -> None:
    (tmp_path / "kg.tsv").write_text("a\tr\tb\n")
    assert "kg.tsv is a file, not a store: turn it into one with 'siafu import" in siafu.refused(
        "embed", "kg.tsv"
    )


@pytest.mark.slow
def test_counts_of_triples_are_shown_and_verified(siafu: Siafu, kg: Path) -> None:
    told = siafu("info", kg).out
    assert "entities    120, with names\nrelations   2 (sibling of, rival of)\n" in told
    found = siafu("info", kg, json=True).json()
    assert (found["entities"], found["relation_names"]) == (120, ["sibling of", "rival of"])
    assert siafu("doctor", kg, json=True).json()["store"]["triples"] == sum(found["triples"].values())


@pytest.mark.slow
def test_each_command_refuses_the_other_kind_of_run_and_store(siafu: Siafu, kg: Path, tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "graph.store")
    assert "is a store of triples" in siafu.refused("train", kg)
    siafu("embed", kg, out=tmp_path / "kg.run", **SMALL)
    assert "holds embeddings, not a model" in siafu.refused("evaluate", tmp_path / "kg.run")
    siafu("train", tmp_path / "graph.store", out=tmp_path / "gnn.run", epochs=1)
    line = siafu.refused("embed", "neighbours", tmp_path / "gnn.run", "x")
    assert "holds a trained model, not embeddings" in line


def test_a_plain_graph_is_embedded_asked_and_gone_on_with(siafu: Siafu, tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "graph.store")
    ended = siafu("embed", tmp_path / "graph.store", out=tmp_path / "v.run", json=True, **SMALL)
    assert ended.code == 0, ended
    assert "1 relation," in ended.err
    near = siafu("embed", "neighbours", tmp_path / "v.run", "3", top=2, json=True).json()["answers"]
    assert len(near) == 2
    more = {**SMALL, "epochs": 5}
    again = siafu("embed", tmp_path / "graph.store", out=tmp_path / "v.run", resume=True, json=True, **more)
    assert again.json()["epochs"] == 5


def test_a_run_goes_on(siafu: Siafu, kg: Path, tmp_path: Path) -> None:
    siafu("embed", kg, out=tmp_path / "kg.run", **SMALL)
    ended = siafu("embed", kg, out=tmp_path / "kg.run", resume=True, json=True, **{**SMALL, "epochs": 5})
    assert ended.json()["epochs"] == 5
    assert "--resume needs --out" in siafu.refused("embed", kg, resume=True)


@pytest.mark.slow
def test_vectors_become_features_that_can_be_trained_on(siafu: Siafu, kg: Path, tmp_path: Path) -> None:
    ended = siafu("embed", kg, out=tmp_path / "kg.run", candidates=30, **SMALL)
    assert "filtered MRR among 30 sampled candidates" in ended.err
    toy_graph(ids=[f"member {number}".encode() for number in range(210)]).save(tmp_path / "graph.store")
    made = siafu(
        "embed", "features", tmp_path / "kg.run", tmp_path / "graph.store", output=tmp_path / "both.store"
    )
    assert made.code == 0, made.err
    assert "90 are no entities, and have zeros" in made.err
    assert siafu("train", tmp_path / "both.store", out=tmp_path / "gnn.run", epochs=1).code == 0
    line = siafu.refused(
        "embed", "features", tmp_path / "kg.run", tmp_path / "graph.store", output=tmp_path / "both.store"
    )
    assert "both.store" in line


def test_a_plan_says_where_it_fits_how_long_it_takes_and_what_to_run(siafu: Siafu, kg: Path) -> None:
    few = ("--instance", "c5.2xlarge", "--instance", "c5n.4xlarge")
    ended = siafu("embed", "plan", kg, *few, dim=40, score="complex")
    assert ended.code == 0, ended.err
    assert "in memory" in ended.out
    assert f"siafu embed {kg} --score complex --dim 40" in ended.out
    sizes = {"entities": 40_000_000, "triples": 10**9}
    found = siafu("embed", "plan", *few, **sizes, json=True).json()
    assert found["chosen"] == found["offers"][0]
    small = next(each for each in found["offers"] if each["instance"] == "c5.2xlarge")
    assert small["partitions"] is not None and small["disk_bytes"] == 32 * 10**9
    assert "name a store of triples, or give --entities" in siafu.refused("embed", "plan")
    assert "give both --entities and --triples" in siafu.refused("embed", "plan", entities=10)


@pytest.mark.parametrize(("installed", "ending"), [(True, "parquet"), (False, "npy")])
def test_the_next_command_needs_no_package_that_is_not_there(
    siafu: Siafu, kg: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, ending: str
) -> None:
    monkeypatch.setattr("siafu.cli.embed.find_spec", lambda name: object() if installed else None)
    ended = siafu("embed", kg, out="kg.run", epochs=1, dim=8)
    assert f"siafu embed export kg.run vectors.{ending}" in ended.out + ended.err

"""`siafu explain` as people use it."""

from pathlib import Path

import pytest

from tests.cli.command import Siafu
from tests.toys import toy_graph


def test_it_says_what_runs_and_what_it_costs(siafu: Siafu, store: Path) -> None:
    ended = siafu("explain", "gcn", store)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert "210 vertices" in lines[0]
    assert "parameters" in lines[1]
    assert "one epoch of training: T0 · G1 · T1(loss) · ∇G1 · ∇T0" in lines
    assert "its evaluation: T0 · G1 · T1" in lines
    (first,) = [line for line in lines if line.startswith("  T1(loss)")]
    assert "42 rows" in first
    assert "folded" in ended.out
    assert not (Path("runs")).exists()


@pytest.mark.slow
def test_json_has_every_stage(siafu: Siafu, store: Path) -> None:
    found = siafu("explain", "sage", store, aggr="max", layers=3, json=True).json()
    assert (found["dataset"], found["model"]) == ("toy", "sage")
    names = [stage["name"] for stage in found["training"]]
    assert names[:3] == ["T0", "G1", "T1"]
    assert "text" not in found["training"][0]
    assert found["training"][0]["flops"] > 0


def test_operations_are_listed_if_asked(siafu: Siafu, store: Path) -> None:
    assert "log_softmax(" not in siafu("explain", "gcn", store).out
    assert "log_softmax(" in siafu("explain", "gcn", store, ops=True).out
    assert "log_softmax(" in str(siafu("explain", "gcn", store, ops=True, json=True).json())


@pytest.mark.slow
def test_both_layouts_of_several_servers_have_a_price(siafu: Siafu, store: Path) -> None:
    told = siafu("explain", "gcn", store, servers=4, partition="hash", network=0.001).out
    assert "on 4 servers with 0.001 Gbit/s each: --layout columns:1" in told
    assert "G1, 3 wide, goes by columns: vertices send" in told
    found = siafu("explain", "gatv2", store, servers=2, json=True).json()
    assert found["layout"] == "vertices"
    assert found["layouts"] == ["no gather of this model can be laid out by columns"]


@pytest.mark.parametrize(
    ("words", "options", "named"),
    [
        (("graphormer",), {}, "gcn, gat, gatv2, transformer, sage, gin"),
        (("gcn",), {"heads": 2}, "--heads"),
        (("gat",), {"hidden": 30, "heads": 8}, "heads"),
        (("gcn",), {"layers": 0}, "--layers"),
    ],
)
def test_a_bad_model_is_one_clear_line(
    siafu: Siafu, store: Path, words: tuple[str, ...], options: dict[str, object], named: str
) -> None:
    assert named in siafu.refused("explain", *words, store, **options)


def test_data_that_no_model_fits_is_one_clear_line(siafu: Siafu, tmp_path: Path) -> None:
    assert "moonbase" in siafu.refused("explain", "gcn", "moonbase")
    toy_graph(x=None).save(tmp_path / "bare")
    assert "no features" in siafu.refused("explain", "gcn", "bare")
    toy_graph().replace(y=None).save(tmp_path / "dumb")
    assert "no labels" in siafu.refused("explain", "gcn", "dumb")


@pytest.mark.slow
def test_explain_prints_the_ways_to_spare_memory_and_their_prices(siafu: Siafu, store: Path) -> None:
    ended = siafu("explain", "sage", store, layers=3, memory="1MB")
    assert "does not fit into 1.0 MB" in ended.out
    assert "is the least" in ended.out
    (line,) = [line for line in ended.out.splitlines() if "evaluation in the training's tables" in line]
    assert line.endswith("taken")
    found = siafu("explain", "sage", store, layers=3, memory="4GB", json=True).json()
    assert found["choice"]["measures"] == []
    assert found["choice"]["least_bytes"] < found["memory"]["peak_bytes"]


def test_explain_says_which_tables_would_be_on_disk(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    ended = siafu("explain", "sage", store, layers=3, memory="1MB", scratch=tmp_path)
    (line,) = [line for line in ended.out.splitlines() if "are on disk: " in line]
    assert f" MB in {tmp_path}" in line
    roomy = siafu("explain", "sage", store, layers=3, memory="4GB", scratch=tmp_path, json=True).json()
    assert roomy["disk"] == []

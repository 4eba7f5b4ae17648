"""What is found when a run begins, and kept for its report."""

import json
from pathlib import Path

import pytest

import siafu
from siafu.bench.run_limits import run_limits
from siafu.graph.partition import make_partition, measure
from siafu.report.files.run_record import read_run
from siafu.training.explanation import explain
from tests.sessions import gcn
from tests.toys import toy_graph


def test_facts_tell_of_stages_partition_and_machine(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, servers=2, partition="hash", out=tmp_path / "run")
    facts = json.loads((tmp_path / "run/facts.json").read_text())
    stages = explain(graph, gcn(graph)).training
    assert [each["flops"] for each in facts["stages"]["train"]] == [each.flops for each in stages]
    quality = measure(graph, make_partition(graph, 2, method="hash"))
    assert facts["partition"]["cut_share"] == pytest.approx(quality.cut_share)
    assert facts["partition"]["forward_ghosts"] == quality.forward_ghosts.tolist()
    assert facts["environment"]["threads"] >= 1


def test_stages_have_the_names_that_seconds_are_counted_by(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, out=tmp_path / "run")
    record = read_run(tmp_path / "run")
    kinds = {f"{lane} {each['kind']}" for lane, stages in record.facts["stages"].items() for each in stages}
    assert kinds == record.busy_seconds().keys() - {"update"}
    assert record.facts["partition"] is None


def test_limits_are_seconds_of_each_kind_on_a_machine_of_the_same_kind_alone(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, out=tmp_path / "run")
    facts = read_run(tmp_path / "run").facts
    limits = run_limits(facts)
    assert limits is not None
    assert {"train T0", "train G1"} <= limits.keys()
    assert all(0 < seconds < 1 for seconds in limits.values())
    facts["environment"]["processor"] = "another"
    assert run_limits(facts) is None
    assert run_limits({}) is None


def test_what_cannot_be_costed_is_left_out_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*arguments: object) -> None:
        raise KeyError("an operation without a price")

    monkeypatch.setattr("siafu.training.records.facts.explain", unable)
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, out=tmp_path / "run")
    assert read_run(tmp_path / "run").facts["stages"] is None

"""Splits that are drawn when training begins: kept with the run, and drawn again to evaluate and to resume."""

from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from tests.sessions import gcn
from tests.toys import toy_graph


def test_a_run_trains_on_the_split_that_is_drawn() -> None:
    graph = toy_graph()
    own = graph.split(0.5, 0.25, 0.25, seed=7)
    torch.manual_seed(0)
    drawn = siafu.train(graph, gcn(graph), epochs=3, split="random:50/25/25", split_seed=7)
    torch.manual_seed(0)
    given = siafu.train(own, gcn(graph), epochs=3)
    other = siafu.train(graph, gcn(graph), epochs=3)
    assert [each.train_loss for each in drawn.history] == [each.train_loss for each in given.history]
    assert [each.train_loss for each in drawn.history] != [each.train_loss for each in other.history]


def test_the_split_that_was_drawn_is_evaluated_where_the_graph_has_none() -> None:
    graph = toy_graph()
    bare = graph.replace(train=None, val=None, test=None)
    run = siafu.train(bare, gcn(graph), epochs=3, split="random:50/25/25", split_seed=7)
    assert run.evaluate(bare) == run.evaluate(graph.split(0.5, 0.25, 0.25, seed=7))
    assert run.evaluate(graph)["test"]["rows"] == len(graph.test)  # type: ignore[arg-type]
    other = toy_graph(120).replace(train=None, val=None, test=None)
    with pytest.raises(BadInput, match="has no split"):
        run.evaluate(other)


def test_a_store_of_another_split_is_not_read_in_its_place(tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy.store")
    graph = siafu.load(str(tmp_path / "toy.store"))
    assert graph.source is not None
    assert graph.split(0.5, 0.2, 0.3).source is None


@pytest.mark.parametrize(
    "text", ["some", "random:60/20", "random:90/20/20", "random:a/b/c", "random:0/50/50"]
)
def test_a_split_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="split"):
        siafu.train(toy_graph(), gcn(toy_graph()), split=text)


def test_a_cluster_reads_its_split_from_the_store() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="siafu import --split"):
        siafu.train(graph, gcn(graph), split="random:60/20/20", cluster="local")


def test_a_drawn_split_leaves_no_vertex_in_two_parts() -> None:
    graph = toy_graph().split_as("random:60/20/20", 1)
    parts = np.concatenate([graph.train, graph.val, graph.test])
    assert len(np.unique(parts)) == len(parts)


def test_python_takes_the_command_lines_text() -> None:
    graph = toy_graph()
    asked, meant = (
        graph.split("stratified:50/25/25", seed=3),
        graph.split(0.5, 0.25, 0.25, seed=3, stratified=True),
    )
    assert np.array_equal(asked.train, meant.train) and np.array_equal(asked.test, meant.test)
    with pytest.raises(BadInput, match="random:60/20/20"):
        graph.split("60/20/20")


def test_a_run_without_a_test_split_shows_its_validation_score() -> None:
    graph = toy_graph().replace(test=None)
    run = siafu.train(graph, gcn(graph), epochs=2)
    assert f"val accuracy {run.summary()['val_accuracy']:.4f}" in repr(run)

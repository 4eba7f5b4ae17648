"""How many vertices classes have, and splits that lack some."""

import numpy as np

from siafu.graph import Graph
from siafu.graph.class_counts import ClassCounts, lopsided_split


def graph_of(y: object, **data: object) -> Graph:
    count = len(np.asarray(y))
    return Graph.from_edges(np.arange(count), np.roll(np.arange(count), 1), y=y, **data)


def test_classes_are_counted_in_all_and_in_each_part() -> None:
    counts = ClassCounts.of(graph_of([3, 0, -1, 3, 0, 0], train=[0, 1], val=[3]))
    assert counts is not None
    assert counts.all.tolist() == [3, 0, 0, 2]
    assert (counts.occurring, counts.unlabelled) == (2, 1)
    assert {part: found.tolist() for part, found in counts.parts.items()} == {
        "train": [1, 0, 0, 1],
        "val": [0, 0, 0, 1],
    }


def test_a_class_that_train_lacks_and_a_part_of_one_class_are_told_by_name() -> None:
    y = ["ant"] * 30 + ["bee"] * 10 + ["cat"] * 10
    told = lopsided_split(graph_of(y, train=range(40), val=range(40, 50)))
    assert told is not None
    assert "train has no vertex of class cat; val has vertices of class cat only" in told
    assert "--split stratified:60/20/20" in told


def test_of_many_classes_that_train_lacks_three_are_named() -> None:
    told = lopsided_split(graph_of(np.arange(9), train=[0]))
    assert told is not None and "train has no vertex of classes 1, 2, 3 and 5 more" in told


def test_a_fair_split_and_a_few_vertices_of_one_class_are_not_told() -> None:
    assert lopsided_split(graph_of([0, 1] * 50).split(0.6, 0.2, 0.2)) is None
    assert lopsided_split(graph_of([0, 1] * 50, train=[0, 1], val=range(2, 20, 2))) is None
    assert lopsided_split(graph_of([0] * 40, train=range(20), test=range(20, 40))) is None


def test_a_class_of_more_than_half_of_a_part_is_told() -> None:
    counts = ClassCounts.of(graph_of(["ant"] * 7 + ["bee"] * 3, train=range(4, 10), test=range(4)))
    assert counts is not None
    assert counts.majority("train") is None  # three of six
    assert counts.majority("val") is None
    assert counts.majority("test") == "100.00 % of them of class ant"


def test_labels_that_are_no_classes_have_no_counts() -> None:
    assert ClassCounts.of(graph_of([0.5, 1.5, 2.5])) is None
    assert ClassCounts.of(graph_of([[0, 1], [1, 1]])) is None
    assert ClassCounts.of(Graph.from_edges([0], [1])) is None

"""Losses and accuracies, against figures worked out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from siafu import Graph
from siafu.base.errors import BadInput
from siafu.report.score import Target, classes, micro_f1, probabilities
from siafu.server.plan import rows_of


def test_micro_f1_counts_all_labels_of_all_vertices_together() -> None:
    predicted = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 0]])
    actual = torch.tensor([[1, 1, 0], [0, 0, 1], [1, 1, 0]])
    # 3 hits, 1 false alarm, 2 misses: precision 3/4, recall 3/5, F1 = 2 * 3 / (4 + 5)
    assert micro_f1(predicted, actual) == pytest.approx(2 / 3)


def test_micro_f1_of_nothing_is_zero() -> None:
    assert micro_f1(torch.zeros(2, 2), torch.zeros(2, 2)) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_micro_f1_is_the_harmonic_mean_of_precision_and_recall(pairs: list[tuple[bool, bool]]) -> None:
    hits = sum(said and true for said, true in pairs)
    said, true = sum(said for said, _ in pairs), sum(true for _, true in pairs)
    expected = 0.0 if hits == 0 else 2 / (said / hits + true / hits)
    table = torch.tensor(pairs)
    assert micro_f1(table[:, :1], table[:, 1:]) == pytest.approx(expected)


def test_loss_and_accuracy_read_the_named_rows_only() -> None:
    target = Target(torch.tensor([0, 1, 1]), 2)
    logits = torch.tensor([[0.0, 0.0], [1.0, 3.0], [float("nan"), 0.0]])
    rows = torch.tensor([0, 1])
    expected = (np.log(2) + np.log(1 + np.exp(-2))) / 2
    assert target.loss(logits, rows).item() == pytest.approx(expected)
    assert target.accuracy(logits, rows) == 1.0


def test_a_label_holds_where_its_probability_is_above_a_half() -> None:
    logits = torch.tensor([[-1.0, 0.0, 1.0]])
    assert classes(logits, multi_label=True).tolist() == [[False, False, True]]
    assert probabilities(logits, multi_label=True)[0, 1].item() == 0.5


def test_splits_that_are_not_there_have_no_rows() -> None:
    graph = Graph.from_edges([0], [1], y=[0, 1], train=[1])
    assert {split: rows.tolist() for split, rows in rows_of(graph).items()} == {"train": [1]}


def test_a_graph_without_labels_has_no_target() -> None:
    with pytest.raises(BadInput, match="no labels"):
        Target.of(Graph.from_edges([0], [1]))

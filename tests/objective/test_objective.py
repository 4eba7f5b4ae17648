"""The two objectives that Siafu has: losses and metrics, against figures worked out by hand and PyTorch's own."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from siafu import Graph
from siafu.base.errors import BadInput
from siafu.objective.objective import Objective, target_of
from siafu.objective.registry import OBJECTIVES, objective_for, objective_of_run
from siafu.objective.vertex_classes import VertexClasses
from siafu.objective.vertex_labels import VertexLabels
from siafu.server.plan import rows_of
from tests.toys import multi_label_graph, toy_graph


def _micro_f1(predicted: Tensor, actual: Tensor) -> float:
    objective = VertexLabels()
    return objective.measured(objective.tally(predicted.float() - 0.5, actual))


def test_micro_f1_counts_all_labels_of_all_vertices_together() -> None:
    predicted = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 0]])
    actual = torch.tensor([[1, 1, 0], [0, 0, 1], [1, 1, 0]])
    # 3 hits, 1 false alarm, 2 misses: precision 3/4, recall 3/5, F1 = 2 * 3 / (4 + 5)
    assert _micro_f1(predicted, actual) == pytest.approx(2 / 3)


def test_micro_f1_of_nothing_is_zero() -> None:
    assert _micro_f1(torch.zeros(2, 2), torch.zeros(2, 2)) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_micro_f1_is_the_harmonic_mean_of_precision_and_recall(pairs: list[tuple[bool, bool]]) -> None:
    hits = sum(said and true for said, true in pairs)
    said, true = sum(said for said, _ in pairs), sum(true for _, true in pairs)
    expected = 0.0 if hits == 0 else 2 / (said / hits + true / hits)
    table = torch.tensor(pairs)
    assert _micro_f1(table[:, :1], table[:, 1:]) == pytest.approx(expected)


def test_loss_and_accuracy_read_the_named_rows_only() -> None:
    logits = torch.tensor([[0.0, 0.0], [1.0, 3.0], [float("nan"), 0.0]])
    found = VertexClasses().scores(logits, torch.tensor([0, 1, 1]), {"val": torch.tensor([0, 1])})["val"]
    expected = (np.log(2) + np.log(1 + np.exp(-2))) / 2
    assert found == {"rows": 2, "loss": pytest.approx(expected), "accuracy": 1.0}


@given(st.integers(1, 3000), st.integers(2, 9), st.integers(0, 99))
def test_a_mean_loss_is_pytorchs_to_the_bit(rows: int, width: int, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    out, ids = torch.randn(rows, width, generator=source), {"all": torch.arange(rows)}
    classes = torch.randint(width, (rows,), generator=source)
    labels = torch.randint(2, (rows, width), generator=source, dtype=torch.uint8)
    found = VertexClasses().scores(out, classes, ids)["all"]["loss"]
    assert found == F.cross_entropy(out, classes).item()
    found = VertexLabels().scores(out, labels, ids)["all"]["loss"]
    assert found == F.binary_cross_entropy_with_logits(out, labels.float()).item()


def test_a_label_holds_where_its_probability_is_above_a_half() -> None:
    logits = torch.tensor([[-1.0, 0.0, 1.0]])
    assert VertexLabels().answers(logits).tolist() == [[False, False, True]]
    assert VertexLabels().probabilities(logits)[0, 1].item() == 0.5


def test_splits_that_are_not_there_have_no_rows() -> None:
    graph = Graph.from_edges([0], [1], y=[0, 1], train=[1])
    assert {split: rows.tolist() for split, rows in rows_of(graph).items()} == {"train": [1]}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_graph_without_labels_has_no_target(objective: Objective) -> None:
    with pytest.raises(BadInput, match="no labels"):
        target_of(objective, Graph.from_edges([0], [1]))


def test_the_labels_of_a_graph_choose_unless_one_is_asked_for() -> None:
    assert objective_for(toy_graph()).name == "classes"
    assert objective_for(multi_label_graph()).name == "labels"
    assert objective_for(toy_graph(), "labels").name == "labels"


@pytest.mark.parametrize("asked", [3, VertexClasses], ids=["number", "class"])
def test_what_is_no_objective_is_refused_in_one_line(asked: object) -> None:
    with pytest.raises(
        BadInput, match=r"objective is .*: give a name \(classes, labels, regression\) or an object"
    ):
        objective_for(toy_graph(), asked)  # type: ignore[arg-type]


def test_an_objective_that_the_labels_are_not_for_is_refused() -> None:
    with pytest.raises(BadInput, match="objective classes wants one class: choose labels"):
        target_of(OBJECTIVES["classes"], multi_label_graph())
    with pytest.raises(BadInput, match=r"objective labels wants a column .*: choose classes"):
        target_of(OBJECTIVES["labels"], toy_graph())


def test_an_earlier_run_is_known_by_its_metric() -> None:
    assert objective_of_run({"graph": {"metric": "accuracy"}}).name == "classes"
    assert objective_of_run({"graph": {"metric": "micro_f1"}}).name == "labels"


def test_a_runs_objective_that_nobody_registered_is_refused_with_the_way_out() -> None:
    with pytest.raises(BadInput, match=r"objective 'mine', .*Run\.load\(path, objective=…\)"):
        objective_of_run({"objective": {"name": "mine"}, "graph": {"metric": "accuracy"}})

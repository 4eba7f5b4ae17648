"""What is said of a compiled model, against what can be counted by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import siafu
from siafu.graph import Graph
from siafu.nn.layers.layer import Layer
from siafu.program.headline import headline, unused_edge_data
from siafu.server.costs.stage_cost import StageCost
from siafu.server.plan import compile_programs
from siafu.training.explanation import Explanation, explain
from tests.test_own_models import Edgewise, NoGather
from tests.toys import multi_label_graph, toy_graph

V, WIDE, HIDDEN, CLASSES = 210, 8, 16, 3


def gcn(graph: Graph, **options: Any) -> nn.Module:
    return siafu.nn.GCN(graph.num_features, HIDDEN, 2, graph.num_classes, **({"dropout": 0.5} | options))


def stages(found: Explanation) -> dict[str, StageCost]:
    return {stage.name: stage for stage in found.training}


def test_the_stages_are_those_of_the_paper() -> None:
    graph = toy_graph()
    found = explain(graph, gcn(graph))
    assert [stage.name for stage in found.training] == ["T0", "G1", "T1(loss)", "∇G1", "∇T0"]
    assert [stage.name for stage in found.evaluation] == ["T0", "G1", "T1"]


def test_attention_on_the_features_is_not_folded() -> None:
    graph = toy_graph()
    found = explain(graph, siafu.nn.GAT(WIDE, HIDDEN, 2, CLASSES, heads=2))
    names = [stage.name for stage in found.training]
    assert names == ["T0", "G1", "T1", "G2", "T2(loss)", "∇G2", "∇T1", "∇G1", "∇T0"]


def test_a_model_without_gathers_is_one_phase() -> None:
    found = explain(toy_graph(), NoGather())
    assert [stage.name for stage in found.training] == ["T0(loss)"]


def test_products_and_their_gradients_are_counted() -> None:
    graph = toy_graph()
    found = stages(explain(graph, gcn(graph, dropout=0.0)))
    forward = 2 * V * WIDE * HIDDEN + 2 * V * HIDDEN * CLASSES
    assert forward <= found["T0"].flops <= 1.1 * forward
    # Of the weights twice, of the hidden rows once; the features want none.
    backward = forward + 2 * V * HIDDEN * CLASSES
    assert backward <= found["∇T0"].flops <= 1.1 * backward


def test_widths_parameters_and_rows_are_those_of_the_model() -> None:
    graph = toy_graph()
    found = stages(explain(graph, gcn(graph)))
    assert (found["T0"].widths_in, found["T0"].widths_out) == ((WIDE,), (CLASSES,))
    assert found["T0"].parameters == WIDE * HIDDEN + HIDDEN + HIDDEN * CLASSES
    assert found["T1(loss)"].parameters == CLASSES
    assert found["T0"].count == V
    assert found["T1(loss)"].count == len(graph.train)


def test_a_gather_is_counted_over_the_edges_that_it_needs() -> None:
    graph = toy_graph()
    found = explain(graph, gcn(graph))
    needed = int(np.diff(graph.indptr)[graph.train].sum())
    for name in ("G1", "∇G1"):
        assert stages(found)[name].count == needed
        assert stages(found)[name].bytes == needed * CLASSES * 4
    assert found.evaluation[1].count == graph.num_edges
    assert f"{len(graph.train)} of {V} rows" in found.needed


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_rows_stored_in_half_are_read_in_half_the_bytes(precision: str, size: int) -> None:
    graph = toy_graph()
    gather = stages(explain(graph, gcn(graph, precision=precision)))["G1"]
    assert gather.bytes == gather.count * CLASSES * size


def test_what_was_decided_is_said_with_its_reason() -> None:
    graph = toy_graph()
    found = explain(graph, gcn(graph))
    assert found.once == (f"constant0, {WIDE} wide",)
    said = " ".join(found.choices)
    assert "after the gather: its gather, 8 wide, runs once and never again" in said
    assert "before the gather: rows are gathered 3 wide instead of 16" in said
    assert "depends on the features alone: folded" in said


def test_what_is_kept_for_the_way_back_is_in_bytes() -> None:
    graph = toy_graph()
    kept = stages(explain(graph, gcn(graph)))["T0"].kept
    assert kept == V * HIDDEN * 4
    assert all(stage.kept == 0 for stage in explain(graph, gcn(graph)).evaluation)


def test_programs_are_named_by_what_they_compute() -> None:
    graph = toy_graph()
    one, again = (stages(explain(graph, gcn(graph))) for _ in range(2))
    other = stages(explain(graph, gcn(graph, act="elu")))
    assert one["T0"].program == again["T0"].program != other["T0"].program
    assert one["G1"].program is None
    assert "addmm(" in one["T0"].text


class ProductOfEdges(Layer):
    """A linear map after a nonlinearity of both ends: it cannot move to the vertices."""

    gather = siafu.nn.Mean()

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, channels)

    def apply_edge(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.lin(torch.relu(source - target)))


def test_an_edge_function_is_counted_on_every_edge() -> None:
    graph = toy_graph()
    model = Edgewise()
    model.edges = ProductOfEdges(4)
    found = stages(explain(graph, model))["G1"]
    assert found.count == graph.num_edges
    assert found.flops >= graph.num_edges * 2 * 4 * 4
    assert found.parameters == 4 * 4 + 4
    assert found.program is not None


def test_a_product_that_moves_to_the_vertices_is_counted_there() -> None:
    graph = toy_graph()
    found = stages(explain(graph, Edgewise()))
    assert found["G1"].count == graph.num_edges
    assert found["G1"].flops >= graph.num_edges * 4
    assert found["G1"].parameters == 0
    assert found["T0"].parameters >= 8 * 4 + 4


def test_several_labels_can_be_explained() -> None:
    graph = multi_label_graph()
    assert stages(explain(graph, gcn(graph)))["T1(loss)"].widths_out == (4,)


def test_without_a_training_split_all_rows_count() -> None:
    graph = toy_graph(train=None, val=None, test=None)
    assert stages(explain(graph, gcn(graph)))["T1(loss)"].count == V


def test_a_headline_names_what_runs_in_an_epoch_and_what_ran_once() -> None:
    graph = toy_graph()
    rows = torch.from_numpy(graph.train)

    def said(model: nn.Module) -> str:
        return headline(compile_programs(graph, model, rows)["train"])

    assert said(gcn(graph)) == "each epoch gathers GcnSum, 3 wide; computed once: GcnSum, 8 wide"
    assert (
        said(siafu.nn.GAT(8, 8, 3, 3, heads=2)) == "each epoch gathers 2 × Softmax, 8 wide · Softmax, 6 wide"
    )
    assert said(NoGather()) == "no gather is left in an epoch"
    assert "Mean of edge messages, 4 wide" in said(Edgewise())


def test_data_of_edges_that_a_model_does_not_look_at_is_told() -> None:
    plain = toy_graph()
    count = plain.num_edges
    graph = plain.replace(
        edge_weight=np.full(count, 2, np.float32),
        edge_attr=np.ones((count, 2), np.float32),
        edge_type=np.zeros(count, np.int32),
    )
    rows = torch.from_numpy(graph.train)

    def said(model: nn.Module, graph: Graph = graph) -> list[str]:
        return unused_edge_data(compile_programs(graph, model, rows)["train"], graph)

    ending = "which this model does not look at"
    assert said(gcn(graph)) == [f"edges have features (edge_attr) and types (edge_type), {ending}"]
    assert said(siafu.nn.GraphSAGE(8, 8, 2, 3)) == [
        f"edges have weights and features (edge_attr) and types (edge_type), {ending}"
    ]
    assert said(Edgewise()) == [] and said(gcn(plain), plain) == []

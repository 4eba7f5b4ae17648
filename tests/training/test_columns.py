"""Gathers laid out by columns: the oracle's numbers, the bytes of the formula, and what is refused."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import make_partition
from siafu.server.layout.traffic import RowTraffic
from siafu.server.plan import ServerPlan
from tests.oracle import train_plainly
from tests.toys import toy_graph
from tests.training_runs import options, tangled_graph

EPOCHS = 3
SETTINGS: dict[str, Any] = {"lr": 0.02, "weight_decay": 1e-3, "seed": 7}
MODELS = {
    "gcn": lambda given: siafu.nn.GCN(given.num_features, 7, 3, given.num_classes, 0.5),
    "gcn of weights": lambda given: siafu.nn.GCN(given.num_features, 8, 2, given.num_classes, 0.5),
    "sage": lambda given: siafu.nn.GraphSAGE(given.num_features, 8, 2, given.num_classes, 0.5),
    "sage of maxima": lambda given: siafu.nn.GraphSAGE(
        given.num_features, 6, 2, given.num_classes, 0.5, aggr="max"
    ),
    "gin": lambda given: siafu.nn.GIN(given.num_features, 8, 2, given.num_classes, 0.5),
    # Of three and four heads a server has whole ones, with gaps between those of 3 columns, or columns of one.
    "gat": lambda given: siafu.nn.GAT(given.num_features, 9, 3, given.num_classes, 0.5, heads=3),
    "gat without dropout": lambda given: siafu.nn.GAT(
        given.num_features, 32, 2, given.num_classes, 0.0, heads=4
    ),
}


def graph_of(name: str) -> Graph:
    return tangled_graph(weighted=name.endswith("weights"))


def model_of(name: str, graph: Graph) -> siafu.nn.GNN:
    torch.manual_seed(3)
    return MODELS[name](graph).double()


def trained(name: str, **given: Any) -> siafu.Run:
    graph = graph_of(name)
    asked = {"partition": "hash", "intervals": 2, "layout": "columns", **SETTINGS, **given}
    return siafu.train(graph, model_of(name, graph), epochs=EPOCHS, **asked)


def apart(run: siafu.Run, weights: dict[str, torch.Tensor]) -> float:
    found = run.model.state_dict()
    return max(float((found[name] - each).abs().max()) for name, each in weights.items())


@pytest.mark.parametrize("servers", [1, 2, 3, 5])
@pytest.mark.parametrize("name", MODELS)
def test_the_result_is_that_of_the_whole_graph(name: str, servers: int) -> None:
    graph = graph_of(name)
    plain = train_plainly(
        graph, copy.deepcopy(model_of(name, graph)), epochs=EPOCHS, dtype=torch.float64, **SETTINGS
    )
    mode = "sync" if servers % 2 else "pipe"
    run = trained(name, servers=servers, mode=mode)
    np.testing.assert_allclose([each.train_loss for each in run.history], plain.losses, rtol=1e-9)


@pytest.mark.parametrize("name", ["gcn", "sage of maxima", "gat"])
def test_sync_and_pipe_agree_to_the_bit(name: str) -> None:
    one, other = (trained(name, servers=3, mode=mode) for mode in ("sync", "pipe"))
    assert [each.train_loss for each in one.history] == [each.train_loss for each in other.history]
    assert apart(one, other.model.state_dict()) == 0.0


@pytest.mark.parametrize("precision", ["bf16", "mixed"])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_rows_of_sixteen_bits_are_those_of_vertices(name: str, precision: str) -> None:
    graph = graph_of(name)
    one, other, exact = (
        siafu.train(
            graph,
            model_of(name, graph).float(),
            epochs=EPOCHS,
            **{"partition": "hash", "intervals": 2, "servers": 3, **SETTINGS},
            layout=layout,
            precision=kind,
        )
        for layout, kind in (("columns", precision), ("vertices", precision), ("vertices", "fp32"))
    )
    losses, expected, unrounded = (
        np.array([each.train_loss for each in run.history]) for run in (one, other, exact)
    )
    np.testing.assert_allclose(losses, expected, rtol=2e-3)
    assert (losses != unrounded).any()


def test_one_gather_may_go_by_columns_and_another_by_vertices() -> None:
    mixed, plain = (trained("gcn", servers=2, layout=layout) for layout in ("columns:2", "vertices"))
    assert apart(mixed, plain.model.state_dict()) < 1e-9
    assert mixed.counters["bytes_scattered"] != plain.counters["bytes_scattered"]


@pytest.mark.parametrize("layout", ["vertices", "columns"])
@pytest.mark.parametrize("servers", [2, 5])
@pytest.mark.parametrize("name", ["gcn", "sage of maxima", "gat", "gat without dropout"])
def test_bytes_are_those_of_the_formula(name: str, servers: int, layout: str) -> None:
    graph = graph_of(name)
    partition = make_partition(graph, servers, method="hash")
    run = trained(name, servers=servers, partition=partition, layout=layout, evaluate_every=EPOCHS)
    plan = ServerPlan.of(graph, model_of(name, graph), options(servers=servers), partition)
    expected = 0
    for lane, passes in (("train", EPOCHS), ("evaluate", 1)):
        found = RowTraffic.of(
            graph, partition, plan.programs[lane], plan.needed(lane), 8, training=lane == "train"
        ).phases()
        expected += passes * sum(getattr(each, layout) for each in found)
    assert run.counters["bytes_scattered"] == expected


def test_columns_move_about_two_tables_a_way_whatever_the_partition() -> None:
    graph, servers, width = toy_graph(300), 4, 8
    model = siafu.nn.GCN(graph.num_features, width, 3, graph.num_classes)
    for method in ("hash", "contiguous"):
        partition = make_partition(graph, servers, method=method)
        plan = ServerPlan.of(graph, model, options(servers=servers), partition)
        found = RowTraffic.of(
            graph, partition, plan.programs["train"], plan.needed("train"), 4, training=True
        )
        (first, *_) = found.phases()
        assert first.columns == 2 * 2 * 4 * 300 * width * (servers - 1) / servers


def test_edges_of_one_way_are_gathered_back_the_other_way() -> None:
    rng = np.random.default_rng(2)
    ends = rng.integers(0, 90, (2, 500))
    directed = toy_graph(90)
    directed = Graph.from_edges(
        *ends, num_vertices=90, x=directed.x, y=directed.y, train=directed.train, val=directed.val
    )
    torch.manual_seed(1)
    model = siafu.nn.GraphSAGE(8, 6, 3, 3, aggr="max").double()
    asked: dict[str, Any] = {"epochs": EPOCHS, "partition": "hash", "intervals": 2}
    one, other = (
        siafu.train(directed, copy.deepcopy(model), servers=3, layout=layout, **asked)
        for layout in ("columns", "vertices")
    )
    assert apart(one, other.model.state_dict()) < 1e-9


@pytest.mark.parametrize("budget", [True, False])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_an_evaluation_may_use_the_trainings_tables(
    name: str, budget: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from siafu.server.memory.savings import Savings
    from siafu.training.trainer import Trainer

    if budget:
        prepare = Trainer.prepare

        def saving(self: Trainer, *given: Any) -> Any:
            self.plan = self.plan.saving(Savings(shared=True, in_place=True, fused=frozenset({0, 1, 2})))
            return prepare(self, *given)

        monkeypatch.setattr(Trainer, "prepare", saving)
    run = trained(name, servers=2)
    monkeypatch.undo()
    plain = trained(name, servers=2, mode="sync")
    assert [each.train_loss for each in run.history] == [each.train_loss for each in plain.history]
    assert [each.val_loss for each in run.history] == [each.val_loss for each in plain.history]


def test_attention_between_pairs_by_columns_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="no gather of this model can be"):
        siafu.train(graph, siafu.nn.GATv2(8, 8, 2, 3, heads=2), servers=2, layout="columns")


def test_columns_are_refused_where_rows_are_not_of_one_epoch() -> None:
    with pytest.raises(BadInput, match="columns are for modes sync and pipe"):
        siafu.train(toy_graph(), siafu.nn.GCN(8, 8, 2, 3), mode="async", layout="columns")


@pytest.mark.parametrize("layout", ["rows", "columns:", "columns:0", "columns:x", "vertices:1"])
def test_what_is_no_layout_is_refused(layout: str) -> None:
    with pytest.raises(BadInput, match="choose vertices, columns"):
        siafu.train(toy_graph(), siafu.nn.GCN(8, 8, 2, 3), layout=layout)

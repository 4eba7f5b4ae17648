"""A training that computes only rows which its loss depends on: which those are, and that nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn

import siafu
from siafu.graph import Graph
from siafu.options import Options
from siafu.pipeline.ids import Epoch, IntervalId
from siafu.pipeline.task import Task
from siafu.server.assembly import assemble
from siafu.server.memory.fitting import fit
from siafu.server.memory.listing import RunListing, memory_list
from siafu.server.memory.memory_list import Lifetime
from siafu.server.plan import ServerPlan
from siafu.tables import ScratchDirectory
from siafu.training.placement import choose_partition
from tests.oracle import train_plainly
from tests.training_runs import options, tangled_graph, train_in_pipeline

TRAINED = np.array([3, 40, 41, 900], np.int64)
MODELS = {
    "gcn": lambda **given: siafu.nn.GCN(6, 16, 3, 3, 0.5, **given),
    "sage": lambda **given: siafu.nn.GraphSAGE(6, 16, 3, 3, 0.5, **given),
    "sage of maxima": lambda **given: siafu.nn.GraphSAGE(6, 16, 3, 3, 0.5, aggr="max", **given),
    "gin": lambda **given: siafu.nn.GIN(6, 16, 3, 3, 0.5, **given),
    "gat": lambda **given: siafu.nn.GAT(6, 16, 3, 3, 0.5, heads=8, **given),
}


def sparse_labels(**given: Any) -> Graph:
    """A graph of which hardly any vertex is trained on."""
    return tangled_graph(1000, **given).replace(train=TRAINED)


def made(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().to(dtype)


def plan_of(graph: Graph, model: nn.Module, servers: int = 1, **given: Any) -> ServerPlan:
    asked: Options = options(servers=servers, intervals=3, **given)
    return ServerPlan.of(graph, model, asked, choose_partition(graph, servers, "hash"))


@pytest.mark.parametrize("name", ["gcn", "gat"])
@pytest.mark.parametrize("undirected", [True, False])
def test_it_has_the_vertices_from_which_a_path_leads_to_the_loss(name: str, undirected: bool) -> None:
    graph = sparse_labels(undirected=undirected)
    plan = plan_of(graph, made(name))
    assert plan.focus is not None
    into = sp.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr), (1000, 1000))
    reached = np.zeros(1000)
    reached[TRAINED] = 1
    for _ in plan.programs["train"].gathers:
        reached += into.T @ reached
    assert plan.focus.vertices.tolist() == np.flatnonzero(reached).tolist()
    inside = reached > 0
    ghosts = [np.unique(each[inside].indices) for each in (into, into.T.tocsr())]
    assert [len(np.flatnonzero(~inside[each])) for each in ghosts] == [
        plan.focus.forward_ghosts,
        plan.focus.backward_ghosts,
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_weights_are_those_of_the_whole_graph(name: str, undirected: bool, weighted: bool) -> None:
    graph, model = sparse_labels(undirected=undirected, weighted=weighted), made(name, torch.float64)
    assert plan_of(graph, model).focus is not None
    truth = train_plainly(graph, model, epochs=3, dtype=torch.float64)
    found = train_in_pipeline(graph, model, epochs=3, intervals=3, weight_decay=0.0)
    assert found.losses == pytest.approx(truth.losses, rel=1e-9)
    for weight, wanted in truth.weights.items():
        torch.testing.assert_close(found.weights[weight], wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_sync_and_pipe_have_the_same_bits(name: str) -> None:
    graph = sparse_labels()
    one, other = (
        train_in_pipeline(graph, made(name), epochs=3, intervals=4, mode=mode) for mode in ("sync", "pipe")
    )
    assert one.losses == other.losses
    assert all(torch.equal(weight, other.weights[name]) for name, weight in one.weights.items())


def bits(plan: ServerPlan) -> list[Any]:
    """Results of all tasks of an epoch, one after the other."""
    (worker,) = assemble(plan.blueprint(), plan.features, plan.weights).workers
    try:
        return [
            (done.measures, {k: {n: g.tolist() for n, g in v.items()} for k, v in done.gradients.items()})
            for stage in plan.training.stages
            for number in range(plan.interval_counts[0])
            for done in [worker.run(Task("train", Epoch(0), stage, IntervalId(number)), plan.weights)]
            if done.measures or done.gradients
        ]
    finally:
        worker.close()


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_no_budget_changes_a_bit(tmp_path: Path, name: str) -> None:
    plan = plan_of(sparse_labels(), made(name))
    spared = fit(RunListing.of(plan), 1, ScratchDirectory(tmp_path)).plan
    assert spared.savings != plan.savings
    assert spared.savings.disk is not None
    assert spared.focus is plan.focus
    whole, least = bits(plan), bits(spared)
    sums = [sum(measures[0] for measures, _ in found if measures) for found in (whole, least)]
    assert sums[0] == sums[1]
    assert _gradients(whole) == _gradients(least)


def _gradients(results: list[Any]) -> list[Any]:
    return sorted(str(gradients) for _, gradients in results if gradients)


@pytest.mark.parametrize("name", MODELS)
def test_the_list_knows_how_much_is_held(name: str) -> None:
    plan = plan_of(sparse_labels(), made(name))
    (worker,) = assemble(plan.blueprint(), plan.features, plan.weights).workers
    listed = sum(
        each.bytes
        for each in memory_list(plan).allocations
        if each.name.startswith(("training: ", "evaluation: "))
        and each.lifetime is Lifetime.EPOCHS
        and not each.name.endswith("without gaps")
    )
    assert 0.8 * worker.activation_bytes <= listed <= 1.25 * worker.activation_bytes


class OwnModel(nn.Module):
    """Two layers with something in between."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.first, self.second = siafu.nn.GCNConv(6, 8), siafu.nn.GCNConv(8, 8)
        self.third, self.between = siafu.nn.GCNConv(8, 3), between

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        rows = self.second(graph, self.first(graph, x).relu())
        return self.third(graph, self.between(rows))


class Logarithm(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        return torch.log(rows.abs())


def test_all_rows_are_computed_where_other_rows_could_spoil_a_gradient() -> None:
    graph = sparse_labels()
    assert plan_of(graph, OwnModel(nn.ReLU())).focus is not None
    assert plan_of(graph, OwnModel(Logarithm())).focus is None
    assert plan_of(graph, OwnModel(nn.BatchNorm1d(8))).focus is None
    assert plan_of(graph, made("gcn"), servers=2).focus is None
    assert plan_of(tangled_graph(1000), made("gcn")).focus is None

"""The arrays that stages and gathers say they will hold are those that they then hold."""

from typing import Any

import numpy as np
import pytest
import torch

from siafu import nn
from siafu.nn import Gather
from siafu.pipeline.ids import Epoch, IntervalId
from siafu.pipeline.task import Task
from siafu.server import LocalGather, ServerEdges, local_gather, local_messages
from siafu.server.assembly import assemble
from siafu.server.costs.held_array import RowCounts, total_bytes
from siafu.server.gathers.edgewise.edge_gather import held_on_edges
from siafu.server.gathers.registry import behaviour_of
from siafu.server.plan import ServerPlan, model_input
from siafu.server.stages.registry import stages_of
from siafu.training.placement import choose_partition
from tests.server.phases import partition_of, some_graph
from tests.training_runs import options, tangled_graph

GATHERS: dict[str, Gather] = {
    "sum": nn.Sum(),
    "mean in bf16": nn.Mean(precision="bf16"),
    "gcn": nn.GcnSum(),
    "max": nn.Max(),
    "max in bf16": nn.Max(precision="bf16"),
    "softmax": nn.Softmax(heads=3),
    "additive softmax": nn.PairSoftmax(heads=3),
    "additive softmax in bf16": nn.PairSoftmax(heads=1, precision="bf16"),
    "product softmax": nn.PairSoftmax(form="product", heads=3, self_loops=False),
    "softmax in bf16": nn.Softmax(heads=1, precision="bf16"),
}
WIDTH, MESSAGE_WIDTH = 21, 5


def counts(local: LocalGather, server: ServerEdges) -> RowCounts:
    backward = local.backward_tables
    forth, back = len(local.forward_tables[0]), len(backward[0]) if backward else 0
    return RowCounts(server.own, forth, back, some_graph().num_vertices)


def server_of(needed: bool) -> tuple[ServerEdges, Any]:
    graph = some_graph()
    mask = np.arange(graph.num_vertices) % 3 == 0 if needed else None
    return ServerEdges.of(graph, partition_of(graph, 2), 0), mask


@pytest.mark.parametrize("needed", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", GATHERS)
def test_a_gather_holds_what_it_said(name: str, dtype: torch.dtype, training: bool, needed: bool) -> None:
    gather, (server, mask) = GATHERS[name], server_of(needed)
    local = local_gather(gather, server, WIDTH, dtype, needed=mask, training=training)
    said = behaviour_of(gather).held(gather, WIDTH, dtype.itemsize, training=training)
    assert total_bytes(said, counts(local, server)) == local.held_bytes
    assert len({array.name for array in said}) == len(said)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("gather", [nn.Sum(), nn.Mean(), nn.Max()], ids=["sum", "mean", "max"])
def test_an_edge_function_holds_what_it_said(gather: Gather, training: bool) -> None:
    server, mask = server_of(needed=True)
    program: Any = None  # nothing is run
    local = local_messages(gather, program, server, WIDTH, MESSAGE_WIDTH, needed=mask, training=training)
    said = (
        *held_on_edges(WIDTH, MESSAGE_WIDTH, 4, training=training),
        *behaviour_of(gather).held_by_reduction(MESSAGE_WIDTH, 4, training=training),
    )
    assert total_bytes(said, counts(local, server)) == local.held_bytes


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gin"])
@pytest.mark.slow
def test_tensor_stages_leave_the_rows_that_they_said(name: str) -> None:
    torch.manual_seed(0)
    graph = tangled_graph()
    model = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}[name]
    built = model(graph.num_features, 4, 3, graph.num_classes, 0.5)
    plan = ServerPlan.of(graph, built, options(intervals=1), choose_partition(graph, 1, "contiguous"))
    x = model_input(plan.graph, normalize=False).to(plan.dtype)
    (worker,) = assemble(plan.blueprint(), x, plan.weights).workers
    for stage in plan.training.stages:
        worker.run(Task("train", Epoch(0), stage, IntervalId(0)), plan.weights)
    own = RowCounts(graph.num_vertices, 0, 0, graph.num_vertices)
    extent = plan.extent("train")
    said = {
        array.name: array.bytes(own)
        for stage in plan.training.stages
        if stage.kind.remote
        for array in stages_of(stage.kind).held(extent, stage)
    }
    (rows,) = worker.lanes["train"]._rows
    assert said == {name: each.nbytes for name, each in rows._tables.items()}

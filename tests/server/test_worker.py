"""A graph server's rows when a run is broken off and begins anew."""

import pytest
import torch
from torch import Tensor

from siafu import nn
from siafu.pipeline.ids import Epoch, IntervalId
from siafu.pipeline.task import Task
from siafu.server.assembly import assemble
from siafu.server.plan import ServerPlan, model_input
from siafu.server.worker import GraphWorker
from siafu.training.placement import choose_partition
from tests.training_runs import options, tangled_graph

MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}
INTERVALS = 2


def plan_of(name: str, servers: int = 1) -> ServerPlan:
    torch.manual_seed(0)
    graph = tangled_graph()
    model = MODELS[name](graph.num_features, 4, 3, graph.num_classes, 0.5).double()
    settings = options(intervals=INTERVALS, servers=servers)
    return ServerPlan.of(graph, model, settings, choose_partition(graph, servers, "contiguous"))


def run_epoch(plan: ServerPlan, worker: GraphWorker, stages: int | None = None) -> list[Tensor]:
    """The gradients of one epoch, interval by interval; of its first `stages` only, if that is given."""
    found = []
    for stage in list(plan.training.stages)[:stages]:
        for interval in range(INTERVALS):
            done = worker.run(Task("train", Epoch(0), stage, IntervalId(interval)), plan.weights)
            found += [each for group in done.gradients.values() for _, each in sorted(group.items())]
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_whatever_was_broken_off_the_next_pass_gives_the_same_gradients(name: str) -> None:
    plan = plan_of(name)
    x = model_input(plan.graph, normalize=False).to(plan.dtype)
    (worker,) = assemble(plan.blueprint(), x, plan.weights).workers
    straight = run_epoch(plan, worker)
    assert straight
    for stages in range(1, len(plan.training.stages)):
        run_epoch(plan, worker, stages)
        worker.begin_anew()
        again = run_epoch(plan, worker)
        assert all(torch.equal(one, other) for one, other in zip(straight, again, strict=True)), stages


def test_rows_that_come_twice_are_compared_with_those_that_are_there() -> None:
    plan = plan_of("gcn", servers=2)
    x = model_input(plan.graph, normalize=False).to(plan.dtype)
    sender, receiver = assemble(plan.blueprint(), x, plan.weights).workers
    stage = next(each for each in plan.training.stages if each.sends)
    for each in plan.training.stages[: stage.id + 1]:
        sender.run(Task("train", Epoch(0), each, IntervalId(0)), plan.weights)
    pieces = sender.pack_rows(receiver.server, "train", stage, IntervalId(0))
    rows = sum(len(piece.rows) for piece in pieces)
    assert rows > 2
    receiver.keep_rows(sender.server, "train", stage, IntervalId(0), pieces)
    assert receiver.compare_rows(sender.server, "train", stage, pieces) == (rows, 0)
    pieces[0].rows[:2, 0] ^= 1
    assert receiver.compare_rows(sender.server, "train", stage, pieces) == (rows, 2)

"""What a training needs at least: less than it takes, and not much less."""

import pytest
import torch
from torch import nn

import siafu
from siafu.graph.partition import make_partition
from siafu.server.assembly import Assembly, assemble
from siafu.server.need import least_bytes, widened_bytes
from siafu.server.plan import Plan, model_input
from tests.toys import toy_graph
from tests.training_runs import options

GRAPH = toy_graph(600)
MODELS = {
    "gcn": lambda **given: siafu.nn.GCN(8, 64, 3, 3, **given),
    "sage": lambda **given: siafu.nn.GraphSAGE(8, 64, 3, 3, **given),
    "sage of maxima": lambda **given: siafu.nn.GraphSAGE(8, 64, 3, 3, aggr="max", **given),
    "gin": lambda **given: siafu.nn.GIN(8, 64, 3, 3, **given),
    "gat": lambda **given: siafu.nn.GAT(8, 64, 3, 3, heads=4, **given),
}


def plan_of(model: nn.Module, *, servers: int = 1) -> Plan:
    partition = make_partition(GRAPH, servers, method="hash")
    return Plan.of(GRAPH, model, options(servers=servers, intervals=2), partition)


def assembled(plan: Plan) -> Assembly:
    x = model_input(plan.graph, normalize=plan.options.normalize_features)
    return assemble(plan.blueprint(), x.to(plan.dtype), plan.weights)


def held(assembly: Assembly) -> int:
    return sum(worker.activation_bytes + worker.constant_bytes for worker in assembly.workers)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_below_what_servers_hold_and_not_far_below(name: str, precision: str, servers: int) -> None:
    plan = plan_of(MODELS[name](precision=precision), servers=servers)
    most = held(assembled(plan))
    assert least_bytes(plan) <= most
    if servers == 1:  # more have ghosts, which are left out
        assert least_bytes(plan) > most / 4


def test_rows_in_bf16_need_less() -> None:
    full, half = (least_bytes(plan_of(MODELS["gcn"](precision=each))) for each in ("fp32", "bf16"))
    assert half < 0.85 * full


def test_twice_the_precision_needs_twice_as_much() -> None:
    single, double = plan_of(MODELS["gcn"]()), plan_of(MODELS["gcn"]().double())
    more = widened_bytes(GRAPH, 8, normalize=False)
    assert 2 * least_bytes(single) <= least_bytes(double) <= 2 * least_bytes(single) + more
    assert least_bytes(double) <= held(assembled(double)) + more


def test_lambdas_keep_rows_elsewhere() -> None:
    plan = plan_of(MODELS["gin"]())
    assert least_bytes(plan, on_lambdas=True) < least_bytes(plan)


def test_features_that_are_used_as_they_are_stored_count_nothing() -> None:
    assert widened_bytes(GRAPH, 4, normalize=False) == 0
    assert widened_bytes(GRAPH, 4, normalize=True) == 600 * 8 * 4
    assert widened_bytes(GRAPH, 8, normalize=False) == 600 * 8 * 8
    assert GRAPH.x is not None
    halved = torch.from_numpy(GRAPH.x).bfloat16().view(torch.uint16).numpy()
    assert widened_bytes(GRAPH.replace(x=halved), 4, normalize=False) == 600 * 8 * 4

"""Features of mostly zeros are held without them, where products alone read them, and nothing else changes."""

import numpy as np
import pytest
import torch

import siafu
from siafu.graph.partition import make_partition
from siafu.program.execute.sparse_rows import SparseRows
from siafu.server.assembly import Assembly, assemble
from siafu.server.memory.listing import memory_list
from siafu.server.plan import ServerPlan, model_input
from siafu.server.rows import sparse_constants as room
from siafu.server.rows.sparse_constants import sparse_constants
from tests.oracle import train_plainly
from tests.toys import toy_graph
from tests.training_runs import options

MODELS = {"gcn": siafu.nn.GCN, "sage": siafu.nn.GraphSAGE, "gin": siafu.nn.GIN, "gat": siafu.nn.GAT}


def words(density: float = 0.02, *, vertices: int = 300) -> siafu.Graph:
    """A toy graph whose features are bags of words."""
    rng = np.random.default_rng(0)
    x = (rng.random((vertices, 120)) < density) * rng.random((vertices, 120))
    x[np.arange(vertices), np.arange(vertices) % 3] = 1
    return toy_graph(vertices, x=x.astype(np.float32))


def model_of(name: str, graph: siafu.Graph, layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    made: torch.nn.Module = MODELS[name](graph.num_features, 16, layers, graph.num_classes, dropout=0.5)
    return made


def plan_of(graph: siafu.Graph, model: torch.nn.Module, servers: int = 1) -> ServerPlan:
    return ServerPlan.of(
        graph, model, options(servers=servers, intervals=2), make_partition(graph, servers, method="hash")
    )


def assembled(plan: ServerPlan, **given: bool) -> Assembly:
    x = model_input(plan.graph, normalize=False).to(plan.dtype)
    return assemble(plan.blueprint(**given), x, plan.weights)


def held_sparse(assembly: Assembly) -> set[bool]:
    return {
        isinstance(rows, SparseRows)
        for worker in assembly.workers
        for lane in worker.lanes.values()
        for rows in lane.constants.values()
    }


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_bags_of_words_are_held_without_zeros_on_every_server(name: str, servers: int) -> None:
    graph = words()
    assert held_sparse(assembled(plan_of(graph, model_of(name, graph), servers))) == {True}


@pytest.mark.parametrize("why", ["dense features", "one layer", "on Lambdas", "bf16"])
@pytest.mark.slow
def test_rows_stay_dense_where_zeros_are_few_or_more_than_products_read_them(why: str) -> None:
    graph = words(0.8) if why == "dense features" else words()
    layers = 1 if why == "one layer" else 2
    model = siafu.nn.GCN(120, 16, layers, 3, precision="bf16" if why == "bf16" else "fp32")
    assert held_sparse(assembled(plan_of(graph, model), on_lambdas=why == "on Lambdas")) == {False}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_training_is_that_of_plain_pytorch(name: str) -> None:
    graph, epochs = words(), 5
    plain = train_plainly(graph, model_of(name, graph).double(), epochs=epochs, dtype=torch.float64)
    run = siafu.train(graph, model_of(name, graph).double(), epochs=epochs, lr=0.01, weight_decay=0.0, seed=0)
    assert [each.train_loss for each in run.history] == pytest.approx(plain.losses, rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_dense_rows_but_for_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = words()

    def losses() -> list[float]:
        run = siafu.train(graph, model_of(name, graph), epochs=4, servers=2, intervals=2, mode="pipe")
        return [each.train_loss for each in run.history]

    sparse = losses()
    monkeypatch.setattr(room, "MOST_DENSITY", -1.0)
    assert sparse == pytest.approx(losses(), rel=1e-4)


@pytest.mark.slow
def test_a_servers_part_decides_nothing() -> None:
    """One server of words and one of dense rows still agree: a whole graph is sampled."""
    graph = words()
    x = np.asarray(graph.x).copy()
    x[: len(x) // 2] = 1
    mixed = toy_graph(300, x=x)
    plan = plan_of(mixed, model_of("gcn", mixed), servers=2)
    assert len(held_sparse(assembled(plan))) == 1


@pytest.mark.slow
def test_rows_without_zeros_are_listed_as_they_are_held() -> None:
    graph = words(vertices=900)
    plan = plan_of(graph, model_of("sage", graph))
    held = sum(worker.constant_bytes for worker in assembled(plan).workers)
    named = {"constant rows without zeros", "the same by column"}
    listed = [each for each in memory_list(plan).allocations if each.name in named]
    assert sum(each.bytes for each in listed) == pytest.approx(held, rel=0.2)


def test_a_prediction_lists_no_rows_for_the_way_back() -> None:
    graph = words()
    plan = ServerPlan.to_infer(graph, model_of("sage", graph), None, normalize=False)
    named = [each.name for each in memory_list(plan).allocations]
    assert "constant rows without zeros" in named
    assert "the same by column" not in named


def test_programs_for_training_and_evaluation_share_the_rows() -> None:
    graph = words()
    (worker,) = assembled(plan_of(graph, model_of("gcn", graph))).workers
    (one,), (other,) = (tuple(lane.constants.values()) for lane in worker.lanes.values())
    assert one is other


def test_names_are_of_the_program() -> None:
    graph = words()
    plan = plan_of(graph, model_of("sage", graph))
    program = plan.programs["train"]
    assert sparse_constants(program, graph) == set(program.constants)

"""The list of a run's arrays, made before any of them is allocated: what it has, and that servers hold no more and no less."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import siafu
from siafu.graph import Graph
from siafu.graph.partition import make_partition
from siafu.kernels import blocking
from siafu.kernels.advice.advisor import Advisor
from siafu.kernels.advice.findings import Findings
from siafu.server.assembly import Assembly, assemble
from siafu.server.memory.constants import widened_bytes
from siafu.server.memory.listing import memory_list
from siafu.server.memory.memory_list import Lifetime, MemoryList
from siafu.server.plan import ServerPlan, model_input
from tests.toys import toy_graph
from tests.training_runs import options

GRAPH = toy_graph(600)
BENCH = Path(__file__).parents[3] / "bench" / "memory.py"
MODELS = {
    "gcn": lambda **given: siafu.nn.GCN(8, 64, 3, 3, **given),
    "sage": lambda **given: siafu.nn.GraphSAGE(8, 64, 3, 3, **given),
    "sage of maxima": lambda **given: siafu.nn.GraphSAGE(8, 64, 3, 3, aggr="max", **given),
    "gin": lambda **given: siafu.nn.GIN(8, 64, 3, 3, **given),
    "gat": lambda **given: siafu.nn.GAT(8, 64, 3, 3, heads=4, **given),
}


def plan_of(
    model: nn.Module, *, servers: int = 1, graph: Graph = GRAPH, layout: str = "vertices"
) -> ServerPlan:
    partition = make_partition(graph, servers, method="hash")
    return ServerPlan.of(graph, model, options(servers=servers, intervals=2, layout=layout), partition)


def assembled(plan: ServerPlan) -> Assembly:
    x = model_input(plan.graph, normalize=plan.options.normalize_features)
    return assemble(plan.blueprint(), x.to(plan.dtype), plan.weights)


def rows(listed: MemoryList) -> int:
    """Bytes of the stages' arrays: tables and kept rows."""
    named = ("training: ", "evaluation: ")
    return sum(
        each.bytes
        for each in listed.allocations
        if each.name.startswith(named)
        and each.lifetime is Lifetime.EPOCHS
        and not each.name.endswith("without gaps")
    )


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_tables_and_kept_rows_are_those_that_servers_hold(name: str, precision: str, servers: int) -> None:
    plan = plan_of(MODELS[name](precision=precision), servers=servers)
    held = sum(worker.activation_bytes for worker in assembled(plan).workers)
    # What the list knows better: gradients of rows that do not travel, and pages that nobody touches.
    assert 0.8 * held <= rows(memory_list(plan)) <= 1.25 * held


@pytest.mark.parametrize("name", ["gcn", "sage of maxima", "gat"])
def test_tables_of_gathers_by_columns_are_those_that_servers_hold(name: str) -> None:
    plan = plan_of(MODELS[name](), servers=3, layout="columns")
    held = sum(worker.activation_bytes for worker in assembled(plan).workers)
    assert 0.8 * held <= rows(memory_list(plan)) <= 1.25 * held


@pytest.mark.parametrize("far", [False, True], ids=["rules", "advisor"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.slow
def test_edges_are_those_that_servers_hold(
    symmetric: bool, far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an advisor in blocks for the cache that cores share, which is taken to be very small."""
    draws = np.random.default_rng(0)
    src, dst = draws.integers(0, 3000, (2, 400_000))
    ends = (np.concatenate([src, dst]), np.concatenate([dst, src])) if symmetric else (src, dst)
    graph = Graph.from_edges(
        *ends,
        num_vertices=3000,
        x=np.ones((3000, 8), np.float32),
        y=np.arange(3000) % 3,
        train=np.arange(0, 3000, 2),
    )
    plan = plan_of(MODELS["gcn"](), graph=graph)
    if far:
        monkeypatch.setattr(blocking, "cache_bytes", lambda level: {2: 1 << 20, 3: 1 << 14}[level])
        monkeypatch.setattr(blocking, "_EDGES_PER_VISIT", 1 << 20)
        plan = replace(plan, advisor=Advisor(Findings()))
    blueprint = plan.blueprint()
    edges = blueprint.edges(0)
    blueprint.worker(edges, blueprint.bounds(edges), lambda program: {"constant0": torch.ones(3000, 8)})
    named = {"in-edges", "out-edges", "edges in blocks"}
    allocations = memory_list(plan).allocations
    assert far == any("share" in each.purpose for each in allocations if each.name == "edges in blocks")
    listed = sum(each.bytes for each in allocations if each.name in named)
    assert listed == pytest.approx(edges.held_bytes, rel=0.02)


def test_rows_in_bf16_need_less() -> None:
    full, half = (rows(memory_list(plan_of(MODELS["gcn"](precision=each)))) for each in ("fp32", "bf16"))
    assert half < 0.85 * full


def test_lambdas_keep_rows_elsewhere() -> None:
    plan = plan_of(MODELS["gin"]())
    assert rows(memory_list(plan, on_lambdas=True)) < rows(memory_list(plan))


def test_mapped_files_are_listed_and_count_nothing_in_the_peak(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "toy.store")
    inside, mapped = (
        memory_list(plan_of(MODELS["gcn"](), graph=graph))
        for graph in (GRAPH, siafu.load(tmp_path / "toy.store"))
    )
    assert GRAPH.x is not None
    assert inside.mapped == 0
    assert mapped.mapped >= GRAPH.x.nbytes + GRAPH.indices.nbytes
    assert "features" not in {each.name for each in mapped.allocations if not each.mapped}


def test_features_that_are_used_as_they_are_stored_count_nothing() -> None:
    assert widened_bytes(GRAPH, 4, normalize=False) == 0
    assert widened_bytes(GRAPH, 4, normalize=True) == 600 * 8 * 4
    assert widened_bytes(GRAPH, 8, normalize=False) == 600 * 8 * 8
    assert GRAPH.x is not None
    halved = torch.from_numpy(GRAPH.x).bfloat16().view(torch.uint16).numpy()
    assert widened_bytes(GRAPH.replace(x=halved), 4, normalize=False) == 600 * 8 * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "model", "budget"),
    [("sparse", "sage", ["--layers", "3", "--memory", "least"]), ("dense", "gcn", []), ("words", "gcn", [])],
)
def test_a_training_peaks_where_the_list_says(shape: str, model: str, budget: list[str]) -> None:
    command = [sys.executable, str(BENCH), "--one", "--shape", shape, "--model", model, *budget]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["peak"] == pytest.approx(found["list"]["peak_bytes"], rel=0.15)

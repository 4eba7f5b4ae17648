"""Trainings whose tables are on disk: the same numbers, to the bit, as in memory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import siafu
from siafu import Graph
from siafu.base.storage.mapped import mapped_file
from siafu.errors import BadInput
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.server import fused_gathers as chunks
from siafu.server.gathers.on_disk import collected_sources
from siafu.server.memory import disk_share, listing
from siafu.server.memory.disk_share import DiskCut
from siafu.server.memory.savings import Savings
from siafu.server.rows import constants_on_disk
from siafu.tables import row_stream
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.run import Run
from siafu.training.trainer import Trainer
from tests.training_runs import Gated, options, tangled_graph

RELATIONS, FEATURES = 4, 3


def typed(graph: Graph) -> Graph:
    """The same with types of edges, of which the model knows one more, and with features of edges."""
    draws = np.random.default_rng(0)
    types = draws.integers(0, RELATIONS - 1, graph.num_edges, dtype=np.int32)
    features = draws.standard_normal((graph.num_edges, FEATURES), np.float32)
    return replace(graph, edge_type=types, edge_attr=features)


GRAPH = typed(tangled_graph(3000))
Make = Callable[[Graph], nn.Module]
MODELS: dict[str, Make] = {
    "gcn": lambda g: siafu.nn.GCN(g.num_features, 20, 3, g.num_classes, 0.5),
    "sage": lambda g: siafu.nn.GraphSAGE(g.num_features, 20, 3, g.num_classes, 0.5),
    "gin": lambda g: siafu.nn.GIN(g.num_features, 20, 3, g.num_classes, 0.5),
    "gat": lambda g: siafu.nn.GAT(g.num_features, 20, 3, g.num_classes, 0.5, heads=2),
    "bf16": lambda g: siafu.nn.GraphSAGE(g.num_features, 20, 3, g.num_classes, 0.5, precision="bf16"),
    "max": lambda g: Greatest(g.num_features, g.num_classes),
    "rgcn": lambda g: Relational(g.num_features, 20, g.num_classes),
    "chain": lambda g: Chain(g.num_features, g.num_classes),
    "gatv2": lambda g: Featured(g.num_features, g.num_classes),
    "transformer": lambda g: siafu.nn.Transformer(g.num_features, 20, 3, g.num_classes, 0.5, heads=2),
    "edges": lambda g: Gated(g.num_features, 20, 3, g.num_classes, 0.5),
}


class Greatest(nn.Module):
    """Maxima in both layers."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(features, 20), nn.Linear(20, classes)

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        greatest = siafu.nn.Max()
        hidden = torch.relu(greatest(graph, self.first(x)))
        return greatest(graph, self.last(hidden))


class Relational(nn.Module):
    """Sums by type in both layers, of matrices that are composed, and of whole ones."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = siafu.nn.RGCNConv(features, hidden, RELATIONS, num_bases=2)
        self.last = siafu.nn.RGCNConv(hidden, classes, RELATIONS, aggr="add")

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(graph, torch.relu(self.first(graph, x)))
        return found


class Featured(nn.Module):
    """GATv2 with features of edges in both layers."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = FeaturedLayer(features, 20, 2), FeaturedLayer(20, classes, 1)

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(graph, torch.relu(self.first(graph, x)))
        return found


class FeaturedLayer(nn.Module):
    def __init__(self, features: int, width: int, heads: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(features, width), nn.Linear(features, width)
        self.att, self.mix = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width, FEATURES))
        self.gather = PairSoftmax("fp32", "additive", heads, self_loops=False, features=FEATURES)

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return self.gather(graph, self.left(x), self.right(x), parameters=(self.att, self.mix))


class Chain(nn.Module):
    """Three gathers of the features, of which the last is kept and one in between is, too."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, 20), nn.Linear(features, 20)
        self.third, self.last = nn.Linear(20, 20), nn.Linear(20, classes)

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        once = siafu.nn.GcnSum()(graph, x)
        thrice = siafu.nn.Mean()(graph, siafu.nn.Sum(precision="bf16")(graph, once * 0.5 + x))
        hidden = self.third(torch.relu(self.first(once) + self.second(thrice)))
        return siafu.nn.Mean()(graph, self.last(siafu.nn.Sum()(graph, hidden)))


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval is gathered in several chunks; sources are collected by groups, however small the graph."""
    monkeypatch.setattr(chunks, "ROWS_AT_ONCE", 512)
    monkeypatch.setattr(collected_sources, "OWN_ROWS", 300)
    monkeypatch.setattr(collected_sources, "collected_bytes", lambda *_: 0)


def on_disk(
    directory: Path,
    groups: int,
    partitions: int,
    *,
    rows: bool = True,
    constants: int = 0,
    buckets: bool = False,
    kept: bool = False,
) -> Savings:
    every = frozenset({0, 1})
    cut = DiskCut(directory, groups, partitions, rows, constants, buckets=buckets)
    return Savings(fused=every, remade=frozenset() if kept else every, disk=cut)


def trained(
    make: Make, savings: Savings, dtype: torch.dtype = torch.float32, servers: int = 1, **given: Any
) -> list[Any]:
    """Losses and scores of all epochs, and the weights after the last."""
    torch.manual_seed(0)
    settings = options(epochs=3, intervals=3, servers=servers, **given)
    trainer = Trainer(GRAPH, make(GRAPH).to(dtype), settings, choose_partition(GRAPH, servers, "hash"))
    trainer.plan = trainer.plan.saving(savings)
    trainer.prepare()
    (last,) = [event for event in trainer.run() if isinstance(event, Checkpoint)]
    found: list[Any] = [(epoch.train_loss, epoch.val_loss, epoch.test_accuracy) for epoch in trainer.history]
    return [*found, {name: tensor.tolist() for name, tensor in last.tensors.items()}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,mode,groups,partitions",
    [
        ("gcn", "pipe", 3, 4),
        ("sage", "sync", 5, 2),
        ("gin", "pipe", 2, 7),
        ("gat", "pipe", 4, 3),
        ("max", "sync", 3, 2),
        ("rgcn", "pipe", 3, 4),
        ("gatv2", "pipe", 3, 4),
        ("transformer", "sync", 2, 5),
        ("edges", "pipe", 4, 3),
    ],
)
def test_a_training_on_disk_is_the_same_to_the_bit(
    tmp_path: Path, name: str, mode: str, groups: int, partitions: int
) -> None:
    plain = trained(MODELS[name], Savings(), mode=mode)
    assert trained(MODELS[name], on_disk(tmp_path, groups, partitions), mode=mode) == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,mode,servers,folded",
    [
        ("gcn", "pipe", 2, 3),
        ("sage", "sync", 3, 0),
        ("gat", "pipe", 3, 0),
        ("max", "pipe", 2, 0),
        ("rgcn", "sync", 2, 0),
        ("transformer", "pipe", 2, 0),
        ("edges", "sync", 3, 0),
    ],
)
def test_servers_of_one_process_have_the_same_bits_on_disk(
    tmp_path: Path, name: str, mode: str, servers: int, folded: int
) -> None:
    plain = trained(MODELS[name], Savings(), mode=mode, servers=servers)
    disk = on_disk(tmp_path, 3, 4, constants=folded, buckets=servers == 2)
    assert trained(MODELS[name], disk, mode=mode, servers=servers) == plain


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sage", "gin"])
def test_so_has_a_training_that_keeps_its_products_on_disk_and_walks_a_copy_of_its_edges(
    tmp_path: Path, name: str
) -> None:
    plain = trained(MODELS[name], Savings())
    assert trained(MODELS[name], on_disk(tmp_path, 3, 5, constants=2, buckets=True, kept=True)) == plain
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,mode,servers,folded,kept",
    [
        ("gcn", "pipe", 1, 0, True),
        ("sage", "sync", 1, 2, False),
        ("gin", "pipe", 2, 0, True),
        ("gat", "pipe", 1, 0, False),
        ("max", "sync", 2, 0, True),
        ("rgcn", "pipe", 1, 0, True),
    ],
)
@pytest.mark.parametrize("held", [{0, 1}, {0}, {1}], ids=["all", "first", "second"])
def test_rows_on_disk_beside_tables_in_memory_are_the_same_to_the_bit(
    tmp_path: Path, name: str, mode: str, servers: int, folded: int, kept: bool, held: set[int]
) -> None:
    found = on_disk(tmp_path, 2, 3, constants=folded, kept=kept)
    assert found.disk is not None
    cut = replace(found.disk, tables=held != {0, 1}, held=frozenset(held))
    savings = replace(found, in_place=True, shared=True, disk=cut)
    assert trained(MODELS[name], savings, mode=mode, servers=servers) == trained(
        MODELS[name], Savings(), mode=mode, servers=servers
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,folded,tables,dtype,given",
    [
        ("gcn", 3, True, torch.float32, {}),
        ("sage", 1, False, torch.float64, {"normalize_features": True}),
        ("gin", 2, True, torch.float64, {}),
        ("bf16", 5, False, torch.float32, {"mode": "sync"}),
        ("chain", 2, True, torch.float32, {}),
        ("gat", 1, False, torch.float32, {"normalize_features": True}),
    ],
)
def test_constants_on_disk_are_the_same_to_the_bit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    folded: int,
    tables: bool,
    dtype: torch.dtype,
    given: dict[str, Any],
) -> None:
    monkeypatch.setattr(row_stream, "SPAN_BYTES", 20_000)
    monkeypatch.setattr(constants_on_disk, "_AT_ONCE", 30_000)
    found = on_disk(tmp_path, 2, 3, constants=folded)
    assert found.disk is not None
    savings = replace(found, disk=replace(found.disk, tables=tables))
    assert trained(MODELS[name], savings, dtype, **given) == trained(MODELS[name], Savings(), dtype, **given)


def test_copies_of_edges_are_mapped_from_scratch_files(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    src, dst = draws.integers(0, 400, (2, 3000), dtype=np.int32)
    graph = Graph.from_edges(
        src,
        dst,
        num_vertices=400,
        edge_weight=draws.random(3000, dtype=np.float32),
        x=GRAPH.x[:400],
        y=draws.integers(0, 3, 400),
        train=np.arange(90),
        val=np.arange(90, 150),
    )
    again = replace(graph)
    losses = []
    for each, savings in ((graph, Savings()), (again, on_disk(tmp_path, 2, 3))):
        torch.manual_seed(0)
        trainer = Trainer(each, MODELS["gcn"](each), options(epochs=2), choose_partition(each, 1, "hash"))
        trainer.plan = trainer.plan.saving(savings)
        trainer.prepare()
        list(trainer.run())
        losses.append([(epoch.train_loss, epoch.val_loss) for epoch in trainer.history])
    assert losses[0] == losses[1]
    assert "out_edges" not in again.__dict__  # the copy is the run's, and goes with it
    mapped = again.with_mapped_out_edges(tmp_path).out_edges
    assert mapped_file(mapped.indices) is not None
    np.testing.assert_array_equal(mapped.indices, graph.out_edges.indices)
    np.testing.assert_array_equal(mapped.weights, graph.out_edges.weights)


def test_in_double_precision_it_is_too(tmp_path: Path) -> None:
    make, given = MODELS["sage"], {"dtype": torch.float64}
    assert trained(make, on_disk(tmp_path, 3, 4), **given) == trained(make, Savings(), **given)


@pytest.mark.parametrize("remade", [True, False])
def test_rows_that_stay_may_be_in_memory_or_kept_on_disk(tmp_path: Path, remade: bool) -> None:
    plain = trained(MODELS["sage"], Savings())
    found = on_disk(tmp_path, 2, 3, rows=not remade)
    kept = found if remade else replace(found, remade=frozenset())
    assert trained(MODELS["sage"], kept) == plain


@pytest.mark.parametrize(
    "make",
    [
        lambda g: siafu.nn.GraphSAGE(g.num_features, 64, 3, g.num_classes, 0.5),
        lambda g: Relational(g.num_features, 256, g.num_classes),
    ],
    ids=["sage", "rgcn"],
)
def test_a_run_within_a_budget_is_the_one_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    # What tests before left in memory comes and goes.
    monkeypatch.setattr(listing, "own_bytes", lambda: 300_000_000)
    for module in (disk_share, listing):
        monkeypatch.setattr(module, "WRITTEN_BEHIND", 1 << 20)
    monkeypatch.setattr(listing, "IDLE_BYTES", 1 << 20)
    graph = typed(tangled_graph(10_000))

    def model() -> nn.Module:
        torch.manual_seed(0)
        return make(graph)

    def run(**given: Any) -> Run:
        return siafu.train(graph, model(), epochs=2, **given)

    free = run()
    trainer = Trainer(graph, model(), options(epochs=2), choose_partition(graph, 1, "auto"), memory="1MB")
    budget = trainer.memory_choice.least - 500_000  # less than any measure without a disk needs
    tight = run(memory=str(budget), scratch=tmp_path)
    assert [(e.train_loss, e.val_loss) for e in tight.history] == [
        (e.train_loss, e.val_loss) for e in free.history
    ]
    summary = tight.summary()
    assert summary["memory_budget_bytes"] == budget
    assert summary["memory_planned_bytes"] <= budget
    assert summary["bytes_written"] > 0
    assert summary["bytes_read"] > summary["bytes_written"]
    assert free.summary()["bytes_read"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "given,what",
    [
        ({"mode": "async"}, "only in modes sync and pipe"),
        ({"lambdas": "local"}, "only without Lambdas"),
        ({"scratch": "none"}, "does not exist"),
    ],
)
def test_what_cannot_be_on_disk_is_refused_in_one_line(
    tmp_path: Path, given: dict[str, Any], what: str
) -> None:
    model = MODELS["gcn"](GRAPH)
    with pytest.raises(BadInput, match=what):
        siafu.train(GRAPH, model, epochs=1, memory="1MB", **{"scratch": tmp_path, **given})


def test_a_budget_that_no_disk_helps_is_refused_with_the_least_that_would_do(tmp_path: Path) -> None:
    told = r"training with \d+MB of tables on disk needs .+ of memory, and memory is 1MB: give at least that \(the program itself takes .+\), or"
    with pytest.raises(BadInput, match=told):
        siafu.train(GRAPH, MODELS["gcn"](GRAPH), epochs=1, memory="1MB", scratch=tmp_path)


def test_what_is_refused_without_a_disk_says_what_would_do_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (disk_share, listing):
        monkeypatch.setattr(module, "WRITTEN_BEHIND", 1 << 20)
    monkeypatch.setattr(listing, "IDLE_BYTES", 1 << 20)
    graph = tangled_graph(10_000)
    wide = siafu.nn.GraphSAGE(graph.num_features, 128, 3, graph.num_classes, 0.5)
    with pytest.raises(
        BadInput, match=r"a directory for \d+MB of tables on disk \(scratch\), with which .+ would do"
    ):
        siafu.train(graph, wide, epochs=1, memory="1MB")

"""A gather and the tensor phase that reads it as one stage: the same numbers, to the bit, without a table for gathered rows."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu import Graph
from siafu.pipeline.schedule import fused_gathers
from siafu.server import fused_gathers as chunks
from siafu.server.assembly import assemble
from siafu.server.memory.savings import Savings
from siafu.server.plan import ServerPlan, model_input
from siafu.server.stages.registry import stages_of
from siafu.training.explanation import explain
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer
from tests.training_runs import Gated, GatedConv, compiled, options, tangled_graph

GRAPH = tangled_graph(4400)
ALL = Savings(fused=frozenset({0, 1}), remade=frozenset({0, 1}), in_place=True, shared=True)
Make = Callable[[Graph], nn.Module]


class GreatestGate(Gated):
    """Maxima of messages: their gradients go to the messages that reach them."""

    def make_layer(
        self, in_channels: int, out_channels: int, is_last: bool, **options: Any
    ) -> siafu.nn.Layer:
        layer = GatedConv(in_channels, out_channels)
        layer.gather = siafu.nn.Max()
        return layer


class Skipping(nn.Module):
    """Its last phase reads what the first gather made."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first = nn.Linear(graph.num_features, 8)
        self.second, self.third = nn.Linear(8, 8), nn.Linear(16, graph.num_classes)

    def forward(self, graph: Graph) -> Tensor:
        near = siafu.nn.Mean()(graph, torch.relu(self.first(siafu.nn.features(graph))))
        far = siafu.nn.Mean()(graph, torch.relu(self.second(near)))
        return self.third(torch.cat([near, far], dim=1))  # type: ignore[no-any-return]


MODELS: dict[str, Make] = {
    "gcn": lambda g: siafu.nn.GCN(g.num_features, 20, 3, g.num_classes, 0.5),
    "sage": lambda g: siafu.nn.GraphSAGE(g.num_features, 20, 3, g.num_classes, 0.5),
    "sage of maxima": lambda g: siafu.nn.GraphSAGE(g.num_features, 20, 3, g.num_classes, 0.5, aggr="max"),
    "gin": lambda g: siafu.nn.GIN(g.num_features, 20, 3, g.num_classes, 0.5),
    "gat": lambda g: siafu.nn.GAT(g.num_features, 20, 3, g.num_classes, 0.5, heads=2),
    "gated": lambda g: Gated(g.num_features, 12, 3, g.num_classes, 0.5),
    "skipping": Skipping,
    "batch norm": lambda g: siafu.nn.GCN(g.num_features, 20, 3, g.num_classes, 0.5, norm="batch_norm"),
    "greatest gate": lambda g: GreatestGate(g.num_features, 12, 3, g.num_classes, 0.5),
}


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval is gathered in several chunks."""
    monkeypatch.setattr(chunks, "ROWS_AT_ONCE", 1024)


@cache
def programs_of(name: str, dtype: torch.dtype) -> Any:
    return compiled(GRAPH, MODELS[name](GRAPH).to(dtype))


def trained(name: str, savings: Savings, dtype: torch.dtype = torch.float32, **given: Any) -> list[Any]:
    """Losses and scores of all epochs, and the weights after the last."""
    torch.manual_seed(0)
    settings = options(epochs=2, **given)
    partition = choose_partition(GRAPH, settings.servers, "hash")
    model = MODELS[name](GRAPH).to(dtype)
    trainer = Trainer(GRAPH, model, settings, partition, programs_of(name, dtype))
    trainer.plan = trainer.plan.saving(savings)
    trainer.prepare()
    (last,) = [event for event in trainer.run() if isinstance(event, Checkpoint)]
    found: list[Any] = [(epoch.train_loss, epoch.val_loss, epoch.test_accuracy) for epoch in trainer.history]
    return [*found, {name: tensor.tolist() for name, tensor in last.tensors.items()}]


def plan_of(name: str, savings: Savings) -> ServerPlan:
    plan = ServerPlan.of(
        GRAPH,
        MODELS[name](GRAPH),
        options(intervals=2),
        choose_partition(GRAPH, 1, "hash"),
        programs=programs_of(name, torch.float32),
    )
    return plan.saving(savings)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_training_is_the_same_to_the_bit(name: str) -> None:
    given: dict[str, Any] = {"intervals": 2}
    # Where a training takes statistics, its evaluation has other gathers, and tables of its own.
    savings = replace(ALL, shared=False) if name == "batch norm" else ALL
    assert trained(name, savings, **given) == trained(name, Savings(), **given)


@pytest.mark.parametrize("name", ["sage", "gat"])
@pytest.mark.slow
def test_on_several_servers_and_in_double_precision_it_is_too(name: str) -> None:
    given: dict[str, Any] = {"servers": 2, "intervals": 1, "mode": "sync", "dtype": torch.float64}
    assert trained(name, ALL, **given) == trained(name, Savings(), **given)


def test_one_gather_may_have_a_table_and_another_none() -> None:
    given: dict[str, Any] = {"intervals": 2}
    plain = trained("gcn", Savings(), **given)
    for depth in (0, 1):
        assert trained("gcn", Savings(fused=frozenset({depth})), **given) == plain


def test_stages_are_one_forth_and_back() -> None:
    plan = plan_of("sage", ALL)
    assert " ".join(map(str, plan.training.stages)) == "T0 GT1 ∇GT2 ∇GT1 ∇GT0"
    assert " ".join(map(str, plan.schedules["evaluate"].stages)) == "T0 GT1 GT2"
    reads = {str(stage): [str(plan.training[k]) for k in stage.reads] for stage in plan.training.stages}
    assert reads == {"T0": [], "GT1": ["T0"], "∇GT2": ["GT1"], "∇GT1": ["∇GT2"], "∇GT0": ["∇GT1"]}


def test_a_gather_that_a_later_phase_reads_keeps_its_table() -> None:
    plan = plan_of("skipping", ALL)
    assert 0 not in fused_gathers(plan.training.stages)
    assert fused_gathers(plan.training.stages) == fused_gathers(plan.schedules["evaluate"].stages)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sage", "gat", "greatest gate"])
def test_tables_of_gathered_rows_are_not_held(name: str) -> None:
    def held(savings: Savings) -> int:
        plan = plan_of(name, savings)
        x = model_input(GRAPH, normalize=False)
        (worker,) = assemble(plan.blueprint(), x, plan.weights).workers
        return worker.activation_bytes

    def listed(savings: Savings) -> int:
        plan = plan_of(name, savings)
        found = [
            array.row_bytes * GRAPH.num_vertices
            for lane, schedule in plan.schedules.items()
            for stage in schedule.stages
            for array in stages_of(stage.kind).held(plan.extent(lane), stage)
        ]
        return sum(found)

    spared = held(Savings()) - held(Savings(fused=ALL.fused))
    assert spared > 0
    assert listed(Savings()) - listed(Savings(fused=ALL.fused)) == pytest.approx(spared, rel=0.01)


def test_what_a_stage_does_is_what_its_two_parts_do() -> None:
    plan = plan_of("sage", ALL)
    apart = plan_of("sage", Savings())
    extent = plan.extent("train")

    def flops(each: ServerPlan) -> int:
        return sum(stages_of(stage.kind).cost(extent, stage).flops for stage in each.training.stages)

    def edges(each: ServerPlan) -> float:
        return sum(stages_of(stage.kind).work(extent, stage).edges for stage in each.training.stages)

    assert (flops(plan), edges(plan)) == (flops(apart), edges(apart))
    names = [stages_of(stage.kind).cost(extent, stage).name for stage in plan.training.stages]
    assert names == ["T0", "GT1", "GT2(loss)", "∇GT1", "∇GT0"]
    assert [stage.name for stage in explain(GRAPH, MODELS["sage"](GRAPH)).training][:3] == ["T0", "G1", "T1"]

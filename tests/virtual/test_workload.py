"""What a model's stages cost, against what `siafu explain` says of the same model and graph."""

import pytest

from siafu import nn
from siafu.graph.datasets import load
from siafu.graph.partition import make_partition
from siafu.graph.partition.quality import measure
from siafu.training.explanation import explain
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import ModelShape, workload_of


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gin"])
def test_stages_are_those_that_training_runs(name: str) -> None:
    graph = load("demo")
    options = {"heads": 8, "out_heads": 1, "act": "elu"} if name == "gat" else {}
    sizes = {"in_channels": graph.num_features, "out_channels": graph.num_classes}
    model = nn.build(name, {**sizes, "hidden_channels": 64, "num_layers": 2, "dropout": 0.5, **options})
    wanted = explain(graph, model).training
    found = workload_of(ModelShape(name, hidden=64, heads=8), GraphShape.of(graph))
    assert len(found.training) == len(wanted)
    for stage, cost in zip(found.training.stages, wanted, strict=True):
        work = found.work["train", stage.id]
        count = work.rows if cost.over == "rows" else work.edges
        assert count == pytest.approx(cost.count, rel=1e-6), cost.name
        # Products are most of what a tensor stage computes; the rest is what `explain` estimates besides.
        assert work.flops <= cost.flops
        if stage.kind.remote and stage.phase == 0:
            assert work.flops > 0.7 * cost.flops, cost.name
        if cost.over == "rows":
            assert (work.widths_in, work.widths_out) == (cost.widths_in, cost.widths_out)


@pytest.mark.parametrize("servers", [2, 4, 8])
def test_ghosts_of_vertices_dealt_out_by_chance_are_as_many_as_modelled(servers: int) -> None:
    graph = load("demo")
    counted = measure(graph, make_partition(graph, servers, method="hash"))
    shape = GraphShape.of(graph)
    assert shape.ghosts_of_server(servers) == pytest.approx(counted.forward_ghosts.mean(), rel=0.15)
    assert shape.cut_share(servers) == pytest.approx(counted.cut_share, rel=0.05)


def test_measured_ghosts_are_taken_as_they_are() -> None:
    graph = load("demo")
    quality = measure(graph, make_partition(graph, 2, method="contiguous"))
    shape = GraphShape.of(graph, {2: quality})
    assert shape.ghosts_of_server(2) == quality.forward_ghosts.mean()
    assert shape.ghosts_of_server(2, reading=0.1) < shape.ghosts_of_server(2)

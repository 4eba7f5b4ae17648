"""Trainings whose gathers begin with the rows that are there: the bits of those that wait."""

from typing import Any

import pytest
import torch

import siafu
from siafu.runtime import early_gathers
from siafu.server import plan
from siafu.server.gathers.early_gather import EarlyGather
from tests.sessions import same_weights, timeless
from tests.toys import toy_graph

SETTINGS: dict[str, dict[str, Any]] = {
    "one server": {"intervals": 4},
    "three servers": {"servers": 3, "intervals": 3, "partition": "hash"},
    "Lambdas": {"intervals": 4, "lambdas": "local", "lambda_count": 2},
}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gathers of any size begin early, before all other tasks; the bounds up to which they did."""
    found: list[int] = []
    add = EarlyGather.add

    def counted(self: Any, first: int, last: int, until: int, **how: Any) -> None:
        found.append(until)
        add(self, first, last, until, **how)

    setup = plan.ServerPlan.setup
    monkeypatch.setattr(plan, "gather_parts", lambda edges: 8)
    monkeypatch.setattr(
        plan.ServerPlan, "setup", lambda self, layout, **_: setup(self, layout, rows_travel=True)
    )
    monkeypatch.setattr(early_gathers, "LATER", (-2,))
    monkeypatch.setattr(EarlyGather, "add", counted)
    return found


def trained(graph: siafu.Graph, model: str, **options: Any) -> siafu.Run:
    torch.manual_seed(0)
    kind = {"gcn": siafu.nn.GCN, "gat": siafu.nn.GAT, "sage": siafu.nn.GraphSAGE}[model]
    network = kind(graph.num_features, 12, 3, graph.num_classes)
    return siafu.train(graph, network, epochs=3, seed=1, **options)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
@pytest.mark.parametrize("where", ["one server", "three servers"])
def test_gathers_that_begin_early_change_no_bit(model: str, where: str, parts: list[int]) -> None:
    graph = toy_graph()
    early = trained(graph, model, mode="pipe", **SETTINGS[where])
    begun = len(parts)
    waited = trained(graph, model, mode="sync", **SETTINGS[where])
    assert begun > 3 and len(parts) == begun
    assert timeless(early.history) == timeless(waited.history)
    assert same_weights(early.model, waited.model)


@pytest.mark.slow
def test_gathers_begin_while_rows_are_at_lambdas(parts: list[int]) -> None:
    graph = toy_graph()
    early = trained(graph, "gcn", mode="pipe", **SETTINGS["Lambdas"])
    begun = len(parts)
    waited = trained(graph, "gcn", mode="sync", **SETTINGS["Lambdas"])
    assert begun and timeless(early.history) == timeless(waited.history)

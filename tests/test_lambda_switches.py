"""What can be switched off about Lambdas, to see what it is worth, changes nothing in what they compute."""

import pytest
import torch

from siafu import nn
from siafu.runtime.lambdas import Lambdas
from siafu.server.memory.savings import Savings
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer
from tests.oracle import train_plainly
from tests.toys import toy_graph
from tests.training_runs import options, train_in_pipeline

pytestmark = pytest.mark.slow  # trains on processes of local Lambdas


MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}
SWITCHES = {
    "unfused": Lambdas(2, fused=False),
    "keeping": Lambdas(2, rematerialise=False),
    "stashing": Lambdas(2),
    "one in hand": Lambdas(2, places=1),
    "not stashing": Lambdas(2, stash=False),
    "neither": Lambdas(2, fused=False, rematerialise=False, streaming=False),
}


def model_of(name: str) -> nn.GNN:
    torch.manual_seed(1)
    graph = toy_graph()
    return MODELS[name](graph.num_features, 8, 3, graph.num_classes, dropout=0.5).double()


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        ("gcn", "unfused"),
        ("sage", "keeping"),
        ("gin", "not stashing"),
        ("gat", "one in hand"),
        *((name, "stashing") for name in MODELS),
        *((name, "neither") for name in MODELS),
    ],
)
def test_lambdas_compute_what_the_oracle_does(name: str, switch: str) -> None:
    graph, model = toy_graph(), model_of(name)
    judge = train_plainly(graph, model, epochs=2, weight_decay=5e-4, dtype=torch.float64)
    found = train_in_pipeline(
        graph, model, epochs=2, weight_decay=5e-4, servers=2, intervals=3, computed_by=SWITCHES[switch]
    )
    assert found.losses == pytest.approx(judge.losses, rel=1e-9)
    for weight, tensor in judge.weights.items():
        torch.testing.assert_close(found.weights[weight], tensor, rtol=1e-9, atol=1e-12)
    assert (found.counters["lambda"]["shortcuts"] > 0) == (switch in ("stashing", "one in hand"))


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_a_training_with_lambdas_that_spares_memory_is_the_same_to_the_bit(name: str) -> None:
    graph, model = toy_graph(), model_of(name)
    settings = options(epochs=2, servers=2, intervals=2)

    def losses(savings: Savings) -> list[tuple[float, float | None]]:
        partition = choose_partition(graph, 2, "hash")
        trainer = Trainer(graph, model, settings, partition, lambdas=Lambdas(2))
        trainer.plan = trainer.plan.saving(savings)
        trainer.prepare()
        assert list(trainer.run())
        return [(epoch.train_loss, epoch.val_loss) for epoch in trainer.history]

    assert losses(Savings(in_place=True, shared=True)) == losses(Savings())


def kinds(lambdas: Lambdas) -> dict[str, dict[str, int]]:
    found = train_in_pipeline(toy_graph(), model_of("gcn"), epochs=1, intervals=2, computed_by=lambdas)
    counted: dict[str, dict[str, int]] = found.counters["lambda"]["kinds"]
    return counted


def test_unfused_tasks_are_two() -> None:
    found = kinds(Lambdas(1, fused=False))
    assert {"train T0", "train T0, 2", "train ∇T0", "train ∇T0, 2", "train ∇T2", "train ∇T2, 2"} <= set(found)


def test_what_is_kept_travels() -> None:
    here, there = kinds(Lambdas(1)), kinds(Lambdas(1, rematerialise=False))
    assert there["train T0"]["bytes_sent"] > here["train T0"]["bytes_sent"]
    assert there["train ∇T0"]["bytes_received"] > here["train ∇T0"]["bytes_received"]


def test_what_is_stashed_does_not_travel() -> None:
    stashed, nothing = kinds(Lambdas(1)), kinds(Lambdas(1, stash=False))
    assert stashed["train T0"]["bytes_sent"] == nothing["train T0"]["bytes_sent"]
    assert stashed["train ∇T0"]["bytes_received"] <= nothing["train ∇T0"]["bytes_received"]

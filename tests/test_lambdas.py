"""Tensor tasks on Lambdas: processes of this machine under AWS's runtime client, over ZeroMQ with CURVE."""

import pytest
import torch

import siafu
from siafu import nn
from siafu.base.errors import BadInput
from siafu.serverless.platforms.platform import LocalPlatform
from tests.oracle import train_plainly
from tests.toys import toy_graph
from tests.training_runs import options, train_in_pipeline

pytestmark = pytest.mark.slow  # trains on processes of local Lambdas


MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}
LAYOUT = {"servers": 2, "intervals": 8, "lambdas": "local", "lambda_count": 2}


def model_of(name: str, dtype: torch.dtype) -> nn.GNN:
    torch.manual_seed(1)
    graph = toy_graph()
    return MODELS[name](graph.num_features, 8, 2, graph.num_classes, dropout=0.5).to(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_lambdas_compute_what_the_oracle_does(name: str) -> None:
    graph, model = toy_graph(), model_of(name, torch.float64)
    judge = train_plainly(graph, model, epochs=4, weight_decay=5e-4, dtype=torch.float64)
    found = train_in_pipeline(graph, model, epochs=4, weight_decay=5e-4, weight_servers=2, **LAYOUT)
    assert found.losses == pytest.approx(judge.losses, rel=1e-9)
    for weight, tensor in judge.weights.items():
        torch.testing.assert_close(found.weights[weight], tensor, rtol=1e-9, atol=1e-12)


def test_in_float32_they_agree_with_threads() -> None:
    graph, model = toy_graph(), model_of("gcn", torch.float32)
    here = train_in_pipeline(graph, model, epochs=4, servers=2, intervals=8)
    there = train_in_pipeline(graph, model, epochs=4, **LAYOUT)
    assert there.losses == pytest.approx(here.losses, rel=1e-5)


def test_what_they_cost_is_in_the_counters() -> None:
    graph, model = toy_graph(), model_of("gcn", torch.float32)
    counted = train_in_pipeline(graph, model, epochs=2, **LAYOUT).counters["lambda"]
    assert counted["invocations"] >= 1
    assert counted["billed_gb_seconds"] > 0
    assert counted["usd"] > 0
    assert all(each["bytes_received"] > 0 for each in counted["kinds"].values())


class Paid(LocalPlatform):
    """Local ones that cost what they would on AWS."""

    name = "aws"
    paid = True


def test_where_they_are_paid_for_the_run_says_what_they_cost() -> None:
    graph = toy_graph()
    model = model_of("gcn", torch.float32)
    asked = {"epochs": 1, "intervals": 2, "lambda_count": 1}
    summary = siafu.train(graph, model, lambdas=Paid(), **asked).summary()
    cost = summary["cost"]
    assert cost["lambda_compute_usd"] + cost["lambda_requests_usd"] == pytest.approx(summary["lambda"]["usd"])
    assert summary["cost_usd"] == pytest.approx(cost["graph_servers_usd"] + summary["lambda"]["usd"])


def test_with_a_count_that_is_found_the_result_is_the_oracles() -> None:
    graph, model = toy_graph(), model_of("gcn", torch.float64)
    judge = train_plainly(graph, model, epochs=5, weight_decay=5e-4, dtype=torch.float64)
    layout = {"servers": 2, "intervals": 2, "partition": "hash", "lambdas": "local", "lambda_count": "auto"}
    run = siafu.train(graph, model, epochs=5, evaluate_every=5, **layout)
    assert [epoch.train_loss for epoch in run.history] == pytest.approx(judge.losses, rel=1e-9)
    counts = run.summary()["lambda"]["counts"]
    assert counts[0] == 4
    assert len(counts) == 5


def test_a_count_without_lambdas_is_refused() -> None:
    with pytest.raises(BadInput, match="lambdas is off"):
        options(lambda_count=3)


def test_another_place_for_lambdas_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="lambdas is 'moon': choose one of off, local, aws"):
        siafu.train(graph, model_of("gcn", torch.float32), lambdas="moon")

"""Whole trainings whose tensor tasks run under AWS's own Lambda emulator, invoked through boto3."""

from pathlib import Path

import pytest
import torch

import siafu
from siafu import nn
from tests.oracle import train_plainly
from tests.serverless.conftest import models_of_aws_are_read_once, nothing_of_the_users_aws  # noqa: F401
from tests.serverless.emulator import EmulatorPlatform, emulator_binary
from tests.toys import toy_graph

pytestmark = pytest.mark.slow  # trains on processes of local Lambdas

pytest.importorskip("boto3", reason="boto3 is not installed")

MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}


@pytest.mark.parametrize("name", MODELS)
def test_under_the_emulator_a_training_is_the_oracles(name: str, tmp_path: Path) -> None:
    platform = EmulatorPlatform(emulator_binary(tmp_path))
    graph = toy_graph()
    torch.manual_seed(1)
    model = MODELS[name](graph.num_features, 8, 2, graph.num_classes, dropout=0.5).double()
    judge = train_plainly(graph, model, epochs=3, weight_decay=5e-4, dtype=torch.float64)
    run = siafu.train(
        graph, model, epochs=3, servers=2, intervals=8, partition="hash", lambdas=platform, lambda_count=2
    )
    assert [epoch.train_loss for epoch in run.history] == pytest.approx(judge.losses, rel=1e-9)
    used = run.summary()["lambda"]
    assert used["invocations"] >= 1
    assert used["kinds"]["train T0"]["tasks"] == 3 * 16

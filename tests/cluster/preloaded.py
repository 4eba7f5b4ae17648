"""Loaded once, in the process that servers are forked from: models are compiled there, and kernels loaded."""

import os

import torch

from tests.cluster.cases import MODELS, case
from tests.training_runs import train_in_pipeline


def load() -> None:
    """Everything that a server needs, by training a little. All threads end with that: none would survive a fork."""
    torch.set_num_threads(1)
    for name in os.environ.get("SIAFU_TEST_CASES", " ".join((*MODELS, "rows", "learns"))).split():
        given = case(name)
        train_in_pipeline(given.graph, given.model, programs=given.programs, epochs=1, servers=2, intervals=2)


load()

"""Tracing by several threads, and tracing that fails."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu import Graph
from siafu.program.trace.tracing import traced
from tests.toys import toy_graph
from tests.training_runs import compiled


def hashes(graph: Graph, model: nn.Module) -> list[str]:
    """Of what the phases of `model` are compiled to."""
    return [phase.programs.forward_keeping.hash for phase in compiled(graph, model)["train"].phases]


def test_models_are_compiled_by_two_threads_at_a_time() -> None:
    graph = toy_graph()
    models = [siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=0.5) for _ in range(6)]
    alone = hashes(graph, models[0])
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda model: hashes(graph, model), models))
    assert found == [alone] * len(models)


def test_modules_are_as_they_were_after_a_trace_that_failed() -> None:
    before = nn.Module.__call__, nn.Module.__getattr__

    def replaces_and_fails(x: Tensor) -> Tensor:
        nn.Module.__call__ = nn.Module.__getattr__ = lambda *_: x  # type: ignore[assignment]
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        traced(replaces_and_fails, torch.ones(3))
    assert (nn.Module.__call__, nn.Module.__getattr__) == before

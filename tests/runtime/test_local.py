"""LocalRuntime: a run that stands still ends with an error, and no other does."""

from typing import Any

import pytest

import siafu
from siafu.pipeline.events import RowsArrived
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.instructions import Instruction
from siafu.runtime import local
from tests.toys import toy_graph


class LosesRows(GraphServer):
    """Rows of interval 0 never arrive."""

    def _rows_arrived(self, event: RowsArrived, out: list[Instruction]) -> None:
        if event.interval != 0:
            super()._rows_arrived(event, out)


def train(**options: Any) -> siafu.Run:
    graph = toy_graph()
    given = {"epochs": 3, "servers": 2, "intervals": 2} | options
    return siafu.train(graph, siafu.nn.GCN(graph.num_features, 4, 2, graph.num_classes), **given)


def test_a_run_that_stands_still_says_what_happened_last_and_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "GraphServer", LosesRows)
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.02)
    with pytest.raises(siafu.SiafuError, match="the run stands still") as caught:
        train()
    told = str(caught.value)
    assert told.index("\nLast:\n") < told.index("\nWaiting:\n")
    assert "waits for rows of epoch 1 from intervals [0]" in told


@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_a_run_that_goes_on_is_never_taken_for_one_that_stands_still(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(local, "LOOK_SECONDS", 1e-6)
    assert len(train(mode=mode, epochs=20).history) == 20


def test_nor_is_one_whose_tasks_are_on_lambdas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LOOK_SECONDS", 1e-6)
    assert len(train(lambdas="local", lambda_count=2).history) == 3

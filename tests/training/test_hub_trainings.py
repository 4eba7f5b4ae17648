"""Trainings on a graph with hubs: one result, to the bit, in sync and pipe, on one server and on two."""

import pytest

import siafu
from siafu.kernels import hub_rows, hubs
from tests.sessions import gcn, same_weights
from tests.toys import toy_graph


@pytest.mark.parametrize("servers", [1, 2])
def test_sync_and_pipe_sum_hubs_alike(servers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "HUB_EDGES", 8)
    monkeypatch.setattr(hubs, "GROUP_EDGES", 3)
    monkeypatch.setattr(hubs, "SHARED_EDGES", 8)
    graph = toy_graph()
    assert len(hub_rows(graph.indptr)) > 5
    runs = [
        siafu.train(graph, gcn(graph), epochs=5, mode=mode, intervals=3, servers=servers, partition="hash")
        for mode in ("sync", "pipe")
    ]
    assert same_weights(runs[0].model, runs[1].model)

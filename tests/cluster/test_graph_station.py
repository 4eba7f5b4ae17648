"""A graph server in a process of its own: what it says before it joins."""

import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.cluster.graph_station import GraphStation
from siafu.pipeline.ids import Address, ServerId
from siafu.server.plan import ServerPlan
from siafu.training.placement import choose_partition
from tests.toys import toy_graph
from tests.training_runs import options


def test_a_part_that_its_machine_cannot_hold_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    graph = toy_graph()
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
    plan = ServerPlan.of(graph, model, options(servers=2), choose_partition(graph, 2, "hash"))
    threads = torch.get_num_threads()
    station = GraphStation(Address("graph", ServerId(1)), 0, "127.0.0.1", plan, 1)
    try:
        assert station.share().peak_bytes > 0
        monkeypatch.setenv("SIAFU_MEMORY_LIMIT", "1kB")
        with pytest.raises(
            BadInput, match=r"graph server 1 on 127.0.0.1 needs at least .*more servers"
        ) as caught:
            station.share()
        assert "\n" not in str(caught.value)
    finally:
        station.close()
        torch.set_num_threads(threads)

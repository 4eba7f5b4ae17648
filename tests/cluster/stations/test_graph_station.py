"""A graph server in a process of its own: what it says before it joins."""

import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.cluster.stations.graph_station import GraphStation
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
        # What other tests have left in this process would count as memory that it has for the graph.
        monkeypatch.setattr("siafu.cluster.stations.graph_station.own_bytes", lambda: 0)
        with pytest.raises(
            BadInput, match=r"graph server 1 on 127.0.0.1 needs at least .*more servers"
        ) as caught:
            station.share()
        assert "\n" not in str(caught.value)
    finally:
        station.close()
        torch.set_num_threads(threads)


@pytest.mark.parametrize("norm", [None, "batch_norm"])
def test_a_warm_copy_runs_every_stage_beforehand_and_can_be_reached_when_it_is_taken_in(
    norm: str | None,
) -> None:
    torch.manual_seed(0)
    graph = toy_graph()
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes, norm=norm)
    plan = ServerPlan.of(graph, model, options(servers=2), choose_partition(graph, 2, "hash"))
    threads = torch.get_num_threads()
    station = GraphStation(Address("graph", ServerId(1)), None, "127.0.0.1", plan, 1)
    ran: list[tuple[str, int]] = []
    run = station._worker.run
    station._worker.run = lambda task, weights: ran.append((task.lane, task.stage.id)) or run(task, weights)  # type: ignore
    try:
        station.warm_up()
        assert ran == [
            (lane, each.id) for lane, schedule in plan.schedules.items() for each in schedule.stages
        ]
        assert station.share().peak_bytes > 0
        assert not hasattr(station, "post")
        station.take_in(3)
        assert station.post.member.life == 3
    finally:
        station.close()
        torch.set_num_threads(threads)

"""A graph server in a process of its own: what it says before it joins."""

from dataclasses import replace

import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.cluster.stations.graph_station import GraphStation
from siafu.kernels import blocking
from siafu.kernels.advice.advisor import Advisor
from siafu.kernels.advice.findings import Finding, Findings
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


def test_a_server_has_an_advisor_with_what_is_known_of_its_part_where_its_machine_holds_the_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocking, "cache_bytes", lambda level: {2: 256, 3: 1024}[level])
    monkeypatch.setattr(blocking, "_READ_AGAIN", 0.01)
    monkeypatch.setattr(blocking, "_EDGES_PER_VISIT", 1 << 20)
    torch.manual_seed(0)
    graph, threads = toy_graph(60), torch.get_num_threads()
    model = siafu.nn.GCN(graph.num_features, 16, 2, graph.num_classes)
    plan = ServerPlan.of(graph, model, options(servers=2), choose_partition(graph, 2, "hash"))

    def told(advisor: Advisor | None) -> tuple[str, ...]:
        station = GraphStation(
            Address("graph", ServerId(1)), 0, "127.0.0.1", replace(plan, advisor=advisor), 1
        )
        try:
            return station.share().choices
        finally:
            station.close()

    try:
        assert told(None) == ()
        advisor = Advisor(Findings())
        first = told(advisor)
        assert first and all("are timed in the first epochs" in each for each in first)
        known = {
            str(shape): Finding(0, {0: 1.0, choice.ways[-1]: 2.0})
            for shape, choice in advisor._choices.items()
        }
        assert all("as measured before" in each for each in told(Advisor(Findings(found=known))))
        monkeypatch.setattr(GraphStation, "_has_room", lambda self: False)
        assert told(Advisor(Findings())) == ()
    finally:
        torch.set_num_threads(threads)

"""A kind of stage that this file alone knows: it runs, is explained, takes virtual time, and is told of."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import siafu
from siafu.base.errors import SiafuError
from siafu.cli.explain import _lines
from siafu.graph import Graph
from siafu.pipeline.ids import Epoch, IntervalId, StageId
from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import StageKind
from siafu.pipeline.task import Task
from siafu.program.program import Program
from siafu.report.run_story import run_story
from siafu.runtime.story import Wanted
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.stage_cost import StageCost
from siafu.server.lane import Done, Lane, Weights
from siafu.server.memory.listing import memory_list
from siafu.server.plan import ServerPlan
from siafu.server.stages.behaviour import LocalStage, StageBehaviour
from siafu.server.stages.draws import Draws
from siafu.server.stages.registry import STAGES, stages_of
from siafu.training.explanation import explain
from siafu.training.placement import choose_partition
from siafu.virtual.costs import LambdaKind
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.virtual import Simulated, simulate
from siafu.virtual.workload import ModelShape
from tests.sessions import losses
from tests.toys import toy_graph
from tests.training_runs import options
from tests.virtual.virtual_cases import far_lambda, machine

EPOCHS, INTERVALS, SERVERS = 3, 2, 2
BYTES = 12  # of a row that is watched
MEMORY = 100.0  # bytes a second


class Watching(LocalStage):
    """Reads what was gathered for an interval, and notes that it did."""

    def __init__(self, lane: Lane, stage: Stage, seen: Counter[str]) -> None:
        self._lane, self._stage, self._seen = lane, stage, seen

    def run(self, interval: int, weights: Weights, epoch: int) -> Done:
        read = self._lane.inputs(self._stage.phase, interval, self._lane.whole(interval))
        assert all(each.isfinite().all() for each in read)
        self._seen["train" if self._lane.training else "evaluate"] += 1
        return Done()


class Watch(StageBehaviour):
    """W(n) stands between G(n) and T(n)."""

    kind = StageKind("watch", "W")

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def place(self, program: Program, stages: Iterable[Stage], *, training: bool) -> Iterable[Stage]:
        for stage in stages:
            yield stage
            if stage.kind.name == "gather" and stage.direction == "forward":
                yield Stage(StageId(-1), self.kind, "forward", stage.phase)

    def local(self, lane: Lane, stage: Stage, draws: Draws) -> LocalStage:
        return Watching(lane, stage, self.seen)

    def cost(self, extent: Extent, stage: Stage) -> StageCost:
        rows = round(extent.vertices)
        return StageCost(str(stage), "rows", rows, bytes=BYTES * rows, operations=("watch",))

    def held(self, extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
        return (HeldArray("watched", "to be looked at", "gather", BYTES, 1, forward="all", aligned=False),)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The kind, registered for one test."""
    found = Watch()
    monkeypatch.setitem(STAGES, found.kind.name, found)
    return found


@pytest.fixture
def graph() -> Graph:
    return toy_graph()


def model(graph: Graph) -> siafu.nn.GCN:
    torch.manual_seed(0)
    return siafu.nn.GCN(graph.num_features, 4, 2, graph.num_classes, 0.0)


def plan_of(graph: Graph) -> ServerPlan:
    return ServerPlan.of(
        graph, model(graph), options(intervals=INTERVALS), choose_partition(graph, 1, "hash")
    )


def simulated(graph: Graph, lambdas: LambdaKind | None = None) -> Simulated:
    shape = GraphShape(graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes)
    return simulate(
        shape,
        ModelShape(hidden=4),
        replace(machine(), core=replace(machine().core, memory=MEMORY)),
        epochs=2,
        intervals=2,
        lambdas=lambdas,
        lambda_count=1 if lambdas else 0,
    )


@pytest.mark.parametrize("mode", ["sync", "pipe", "async"])
def test_its_tasks_run_on_threads_for_every_interval_of_every_epoch(
    watch: Watch, graph: Graph, mode: str
) -> None:
    siafu.train(
        graph, model(graph), epochs=EPOCHS, servers=SERVERS, intervals=INTERVALS, mode=mode, evaluate_every=1
    )
    stages = len([stage for stage in plan_of(graph).training.stages if stage.kind == watch.kind])
    assert stages > 0
    assert watch.seen["train"] == watch.seen["evaluate"] == EPOCHS * SERVERS * INTERVALS * stages


def test_a_gather_reads_the_stage_that_scatters_though_another_stands_between(
    watch: Watch, graph: Graph
) -> None:
    stages = plan_of(graph).training.stages
    assert {str(stage): str(stages[stage.reads[0]]) for stage in stages if stage.reads} == {
        "G1": "T0",
        "∇G1": "∇T1",
    }


def test_a_training_with_it_is_the_same_to_the_bit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    without = losses(siafu.train(graph, model(graph), epochs=EPOCHS, servers=SERVERS))
    monkeypatch.setitem(STAGES, Watch.kind.name, Watch())
    assert losses(siafu.train(graph, model(graph), epochs=EPOCHS, servers=SERVERS)) == without


def test_it_is_explained(watch: Watch, graph: Graph) -> None:
    found = explain(graph, model(graph))
    assert [stage.name for stage in found.training] == ["T0", "G1", "W1", "T1(loss)", "∇G1", "∇T0"]
    (line,) = [line for line in _lines(found, ops=False) if line.split()[:1] == ["W1"]][:1]
    assert line.split() == ["W1", "210", "rows", "-", "→", "-", "2.5", "kB", "watch"]


@pytest.mark.slow
def test_it_takes_virtual_time_on_cores(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    without = simulated(graph)
    monkeypatch.setitem(STAGES, Watch.kind.name, Watch())
    watched = simulated(graph)
    moved = BYTES * 2 * graph.num_vertices  # in two epochs
    assert watched.busy_seconds["cores W1"] == pytest.approx(moved / MEMORY)
    assert watched.seconds_total > without.seconds_total


def test_it_is_not_sent_to_lambdas(watch: Watch, graph: Graph) -> None:
    found = simulated(graph, far_lambda())
    assert "cores W1" in found.busy_seconds
    assert found.lambda_tasks == 2 * 2 * 3  # T0, T1 and ∇T0 of two intervals in two epochs


def test_what_it_holds_counts_before_a_row_is_allocated(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [each for each in memory_list(plan_of(graph)).allocations if "W1" in each.name]
    monkeypatch.setitem(STAGES, Watch.kind.name, Watch())
    found = [each for each in memory_list(plan_of(graph)).allocations if "W1" in each.name]
    assert {each.name.partition(":")[0] for each in found} == {"training", "evaluation"}
    assert sum(each.bytes for each in found) >= 2 * BYTES * graph.num_vertices


def test_a_trace_and_a_story_tell_of_it(watch: Watch, graph: Graph, tmp_path: Path) -> None:
    siafu.train(graph, model(graph), epochs=2, intervals=INTERVALS, out=tmp_path / "run", trace="full")
    told = [entry.text for entry in run_story(tmp_path / "run", Wanted(interval=1, epoch=2)).entries]
    assert len([text for text in told if text.startswith("train W1 of interval 1, epoch 2")]) == 1


def test_a_task_of_it_is_named_in_words(watch: Watch, graph: Graph) -> None:
    stage = next(stage for stage in plan_of(graph).training.stages if stage.kind == watch.kind)
    assert str(Task("train", Epoch(0), stage, IntervalId(3))) == "W1 of interval 3, train epoch 1"


def test_a_kind_that_no_one_registered_is_refused_by_name(graph: Graph) -> None:
    with pytest.raises(SiafuError, match="no server can run stages of kind watch: it knows tensor, gather"):
        stages_of(Watch.kind)

from dataclasses import replace

import pytest

from siafu.base.errors import SiafuError
from siafu.pipeline.ids import Epoch, IntervalId, PhaseId, StageId
from siafu.pipeline.layout import Layout
from siafu.pipeline.schedule import Schedule, Stage, evaluation_schedule, training_schedule
from siafu.pipeline.stage_kind import GATHER, TENSOR
from siafu.pipeline.task import Task, entry_priority
from tests.pipeline.small import setup


def names(schedule: Schedule) -> str:
    return " ".join(map(str, schedule.stages))


def test_a_training_goes_forward_to_the_loss_and_back_to_the_first_phase() -> None:
    assert names(training_schedule(0, 2, {0, 1, 2})) == "T0 G1 T1 G2 ∇T2 ∇G2 ∇T1 ∇G1 ∇T0"


def test_a_folded_first_gather_is_never_run() -> None:
    assert names(training_schedule(1, 2, {1, 2})) == "T1 G2 ∇T2 ∇G2 ∇T1"


def test_a_training_goes_back_no_further_than_the_lowest_parameters() -> None:
    assert names(training_schedule(0, 2, {1, 2})) == "T0 G1 T1 G2 ∇T2 ∇G2 ∇T1"


def test_an_evaluation_only_goes_forward() -> None:
    assert names(evaluation_schedule(1, 3)) == "T1 G2 T2 G3 T3"


def test_a_gather_reads_the_stage_before_it() -> None:
    schedule = training_schedule(1, 3, {1, 2, 3})
    assert {str(each): str(schedule[each.reads[0]]) for each in schedule.stages if each.reads} == {
        "G2": "T1",
        "G3": "T2",
        "∇G3": "∇T3",
        "∇G2": "∇T2",
    }


def test_only_what_is_read_through_edges_is_scattered() -> None:
    schedule = training_schedule(1, 3, {1, 2, 3})
    assert [str(each) for each in schedule.stages if each.scatters] == ["T1", "T2", "∇T3", "∇T2"]


def test_each_phase_with_parameters_gets_its_gradient_once() -> None:
    assert training_schedule(0, 3, {0, 2, 3}).parameters == (0, 2, 3)


def test_one_phase_alone_is_a_schedule() -> None:
    assert names(training_schedule(1, 1, {1})) == "∇T1"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "without stages"),
        ((Stage(StageId(1), TENSOR, "forward", PhaseId(0)),), "place 0"),
        (
            (
                Stage(StageId(0), TENSOR, "forward", PhaseId(0)),
                Stage(StageId(1), GATHER, "forward", PhaseId(1), reads=(StageId(0),)),
            ),
            "scatters nothing",
        ),
        (
            (
                Stage(StageId(0), TENSOR, "backward", PhaseId(0), gradients=(PhaseId(0),)),
                Stage(StageId(1), TENSOR, "backward", PhaseId(0), gradients=(PhaseId(0),)),
            ),
            "two stages give gradients",
        ),
        (
            (
                Stage(StageId(0), TENSOR, "backward", PhaseId(0), gradients=(PhaseId(0),)),
                Stage(StageId(1), TENSOR, "backward", PhaseId(0)),
            ),
            "gives no gradient",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(stages: tuple[Stage, ...], message: str) -> None:
    with pytest.raises(SiafuError, match=message):
        Schedule(stages)


def test_ready_tasks_run_by_epoch_then_backward_then_stage_then_interval() -> None:
    schedule = training_schedule(1, 2, {1, 2})
    first, gather, last, back, end = schedule.stages

    def task(epoch: int, stage: Stage, interval: int) -> Task:
        return Task("train", Epoch(epoch), stage, IntervalId(interval))

    expected = [
        task(0, end, 4),
        task(0, first, 1),
        task(1, last, 1),
        task(1, back, 0),
        task(1, end, 0),
        task(1, first, 2),
        task(1, first, 3),
        task(1, gather, 0),
    ]
    shuffled = expected[::-1]
    assert sorted(shuffled, key=lambda each: each.priority) == expected


def test_asynchronous_tasks_run_in_the_order_of_stages_so_that_gathers_find_new_rows() -> None:
    first, gather, last, back, end = training_schedule(1, 2, {1, 2}).stages
    expected = [
        Task("train", Epoch(epoch), stage, IntervalId(interval))
        for epoch, stage, interval in (
            (0, end, 4),
            (1, first, 1),
            (1, first, 2),
            (1, gather, 0),
            (1, last, 0),
            (1, back, 0),
            (1, end, 0),
            (2, first, 0),
        )
    ]
    shuffled = expected[::-1]
    assert sorted(shuffled, key=lambda each: each.fresh_priority) == expected
    assert entry_priority(Epoch(1), IntervalId(1)) == expected[1].fresh_priority


def layout(intervals: tuple[int, ...], *reads: set[int]) -> Layout:
    sets = tuple(frozenset(map(IntervalId, each)) for each in reads)
    return Layout(intervals, {"forward": sets, "backward": sets})


def test_intervals_are_numbered_server_by_server() -> None:
    found = layout((2, 1), {0}, {1}, {2})
    assert found.owner == (0, 0, 1)
    assert [found.owned(server) for server in (0, 1)] == [(0, 1), (2,)]


def test_rows_go_to_the_other_servers_that_read_them() -> None:
    found = layout((2, 1, 1), {0, 1, 3}, {1}, {0, 2}, {0, 3})
    assert found.receivers["forward"] == ((1, 2), (), (), (0,))


@pytest.mark.parametrize(("intervals", "sets"), [((), 0), ((1, 0), 1), ((2,), 1)])
def test_a_layout_that_cannot_be_is_refused(intervals: tuple[int, ...], sets: int) -> None:
    with pytest.raises(SiafuError):
        layout(intervals, *[{0}] * sets)


@pytest.mark.parametrize("wrong", [{"weight_servers": 0}, {"staleness": -1}, {"update_every": 0}])
def test_a_setup_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SiafuError, match="give at least"):
        setup(**wrong)  # type: ignore[arg-type]


def test_a_training_without_gradients_is_refused() -> None:
    with pytest.raises(SiafuError, match="no gradient"):
        replace(setup(), training=evaluation_schedule(1, 2))


def test_phases_are_spread_over_the_weight_servers() -> None:
    assert setup(layers=3, weight_servers=2).homes == {1: 0, 2: 1, 3: 0}

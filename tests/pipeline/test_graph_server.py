"""One graph server: events in, instructions out."""

from dataclasses import replace

import pytest

from siafu.pipeline.events import (
    Begin,
    EpochFinished,
    EvaluationStarted,
    GradientArrived,
    GradientTaken,
    Proceed,
    Ready,
    RowsArrived,
    ServerAdvanced,
    TaskDone,
    TaskStarted,
    WeightsAsked,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import Anchor, Epoch, Incarnation, IntervalId, PhaseId, ServerId, StageId, Version
from siafu.pipeline.instructions import Abandon, CompareRows, Instruction, KeepResult, KeepRows, RunTask
from siafu.pipeline.task import Task
from tests.pipeline.small import NOW, START, finish, grant, graph_server, names, receivers, sent, setup, tasks


def rows(interval: int, epoch: int = 0, stage: int = 0) -> RowsArrived:
    return RowsArrived("train", Epoch(epoch), StageId(stage), IntervalId(interval))


def taken(interval: int, phase: int, epoch: int = 0) -> GradientTaken:
    return GradientTaken(Epoch(epoch), PhaseId(phase), IntervalId(interval))


def advanced(server: int, epoch: int, stage: int = 0) -> ServerAdvanced:
    return ServerAdvanced(ServerId(server), Epoch(epoch), StageId(stage))


def run_epoch(machine: GraphServer, first: list[Instruction]) -> list[Instruction]:
    """Finish every task that is asked for; all instructions that came."""
    found, ready = list(first), tasks(first)
    while ready:
        more = finish(machine, ready.pop(0))
        found += more
        ready += tasks(more)
    return found


def test_it_begins_by_abandoning_what_was_and_saying_so() -> None:
    machine = GraphServer(setup(), ServerId(0))
    out = machine.handle(Begin(NOW, START, True))
    assert isinstance(out[0], Abandon)
    assert len(sent(out, Ready)) == 1


def test_nothing_is_entered_before_the_run_says_so() -> None:
    machine = graph_server(setup(), until=0)
    assert machine.handle(Proceed(Epoch(0), START)) == []


def test_an_interval_asks_for_the_version_of_its_epoch() -> None:
    machine = GraphServer(setup(), ServerId(0))
    machine.handle(Begin(NOW, Anchor(Epoch(3), Version(7)), True))
    out = machine.handle(Proceed(Epoch(4), Anchor(Epoch(3), Version(7))))
    assert [(each.interval, each.epoch, each.version) for each in sent(out, WeightsAsked)] == [
        (0, 3, 7),
        (1, 3, 7),
    ]


def test_an_asynchronous_interval_asks_for_the_latest_version() -> None:
    machine = GraphServer(setup(mode="async"), ServerId(0))
    machine.handle(Begin(NOW, START, False))
    out = machine.handle(Proceed(Epoch(1), None))
    assert [each.version for each in sent(out, WeightsAsked)] == [None, None]


@pytest.mark.parametrize(("update_every", "oldest"), [(None, 1), (1, 2), (3, 0)])
def test_an_asynchronous_interval_waits_for_the_gradients_of_epochs_that_all_have_finished(
    update_every: int | None, oldest: int
) -> None:
    machine = graph_server(
        setup(
            intervals=(1, 1), reads=[{0}, {1}], layers=1, mode="async", staleness=1, update_every=update_every
        )
    )
    assert sent(run_epoch(machine, grant(machine, 0)), WeightsAsked) == []  # the first epoch is exact
    (asked,) = sent(machine.handle(advanced(1, epoch=1)), WeightsAsked)
    assert (asked.epoch, asked.version, asked.oldest) == (1, None, oldest)
    (asked,) = sent(run_epoch(machine, grant(machine, 0, 1)), WeightsAsked)
    assert (asked.epoch, asked.version, asked.oldest) == (2, None, oldest)


def test_where_there_is_one_version_nobody_goes_ahead_with_the_old_one() -> None:
    machine = graph_server(
        setup(intervals=(1, 1), reads=[{0}, {1}], layers=1, mode="async", staleness=1, policy="flush")
    )
    run_epoch(machine, grant(machine, 0))
    machine.handle(advanced(1, epoch=1))
    (asked,) = sent(run_epoch(machine, grant(machine, 0, 1)), WeightsAsked)
    assert (asked.epoch, asked.version, asked.oldest) == (2, None, 2)


def test_the_least_loaded_weight_server_is_asked() -> None:
    machine = GraphServer(setup(intervals=(4,), weight_servers=3), ServerId(0))
    machine.handle(Begin(NOW, START, True))
    out = machine.handle(Proceed(Epoch(1), START))
    assert receivers(out, WeightsAsked) == [f"weight server {each}" for each in (0, 1, 2, 0)]


def test_a_server_starts_at_another_weight_server_than_its_neighbour() -> None:
    machine = GraphServer(setup(intervals=(1, 1), weight_servers=2), ServerId(1))
    machine.handle(Begin(NOW, START, True))
    assert receivers(machine.handle(Proceed(Epoch(1), START)), WeightsAsked) == ["weight server 1"]


def test_a_load_that_a_weight_server_tells_is_minded() -> None:
    machine = GraphServer(setup(intervals=(1,), weight_servers=2, mode="async"), ServerId(0))
    machine.handle(Begin(NOW, START, False))
    machine.handle(Proceed(Epoch(2), None))
    first = machine.handle(WeightsGranted(ServerId(0), IntervalId(0), Epoch(0), Version(0), 5))
    assert receivers(run_epoch(machine, first), WeightsAsked) == ["weight server 1"]


def test_a_grant_runs_the_first_stage_with_that_version() -> None:
    machine = graph_server(setup())
    (run,) = tasks(grant(machine, 1, version=4))
    assert (str(run.task.stage), run.task.interval, run.version, run.weights) == ("T1", 1, 4, 0)


def test_a_second_grant_is_dropped() -> None:
    machine = graph_server(setup())
    grant(machine, 0)
    assert grant(machine, 0) == []
    assert machine.counts.duplicates == 1


def test_a_gather_waits_for_all_intervals_that_it_reads() -> None:
    machine = graph_server(setup(intervals=(3,), reads=[{0, 1}, {1}, {2}]))
    starts = [tasks(grant(machine, each))[0] for each in range(3)]
    assert names(finish(machine, starts[0])) == []
    assert names(finish(machine, starts[2])) == ["G2:2"]
    assert names(finish(machine, starts[1])) == ["G2:0", "G2:1"]


def test_a_gather_waits_for_ghosts_and_they_are_stored_first() -> None:
    machine = graph_server(setup(intervals=(1, 1)))
    assert names(finish(machine, tasks(grant(machine, 0))[0])) == []
    out = machine.handle(rows(1))
    assert [type(each) for each in out] == [KeepRows, RunTask]


def test_rows_that_come_again_or_late_are_not_stored() -> None:
    machine = graph_server(setup(intervals=(1, 1)))
    machine.handle(rows(1, epoch=2))
    assert [type(each) for each in machine.handle(rows(1, epoch=2))] == [CompareRows]
    assert machine.handle(rows(1, epoch=1)) == []
    assert machine.counts.duplicates == 2


def test_rows_that_cannot_be_sent_again_or_were_overwritten_are_not_compared() -> None:
    for changes in ({"rows_stay": False}, {"alternate": True}):
        machine = graph_server(replace(setup(intervals=(1, 1)), **changes))
        machine.handle(rows(1, epoch=2))
        assert machine.handle(rows(1, epoch=2)) == []


def test_rows_are_sent_to_the_servers_that_read_them() -> None:
    machine = graph_server(setup(intervals=(1, 1, 1), reads=[{0}, {0, 1}, {2}]))
    out = finish(machine, tasks(grant(machine, 0))[0])
    assert receivers(out, RowsArrived) == ["graph server 1"]


def test_a_result_counts_once() -> None:
    machine = graph_server(setup())
    (run,) = tasks(grant(machine, 0))
    assert isinstance(finish(machine, run)[0], KeepResult)
    assert finish(machine, run) == []
    assert machine.counts.duplicates == 1


def test_a_new_incarnation_starts_from_its_anchor() -> None:
    machine = graph_server(setup())
    grant(machine, 0)
    again = Incarnation(1)
    machine.handle(Begin(again, Anchor(Epoch(5), Version(5)), True))
    out = machine.handle(Proceed(Epoch(6), Anchor(Epoch(5), Version(5))))
    assert [each.epoch for each in sent(out, WeightsAsked)] == [5, 5]


def test_gradients_go_to_their_phases_homes() -> None:
    machine = graph_server(setup(intervals=(1,), weight_servers=2))
    out = run_epoch(machine, grant(machine, 0))
    assert [each.phase for each in sent(out, GradientArrived)] == [2, 1]
    assert receivers(out, GradientArrived) == ["weight server 1", "weight server 0"]


def test_a_version_is_released_when_all_gradients_are_delivered() -> None:
    machine = graph_server(setup(intervals=(1,), mode="async"))
    run_epoch(machine, grant(machine, 0))
    assert sent(machine.handle(taken(0, phase=2)), WeightsReleased) == []
    assert len(sent(machine.handle(taken(0, phase=1)), WeightsReleased)) == 1
    assert machine.handle(taken(0, phase=1)) == []


def test_an_epoch_is_finished_when_all_intervals_are_and_their_measures_are_added() -> None:
    machine = graph_server(setup())
    for interval in (0, 1):
        grant(machine, interval)
    schedule = machine.setup.training
    for stage in range(len(schedule)):
        for interval in (0, 1):
            measures = (0.5, 1.0) if stage == 2 else ()
            task = Task("train", Epoch(0), schedule[stage], IntervalId(interval))
            machine.handle(TaskDone(task, measures))
    out = [machine.handle(taken(interval, phase)) for interval in (0, 1) for phase in (1, 2)]
    assert [sent(each, EpochFinished) for each in out[:3]] == [[], [], []]
    (finished,) = sent(out[3], EpochFinished)
    assert finished == EpochFinished("train", ServerId(0), Epoch(0), (1.0, 2.0))


def test_sync_runs_one_stage_at_a_time_on_all_servers() -> None:
    machine = graph_server(setup(intervals=(2, 1), reads=[{0}, {1}, {2}], mode="sync"))
    starts = [tasks(grant(machine, each))[0] for each in (0, 1)]
    assert names(finish(machine, starts[0])) == []
    assert names(finish(machine, starts[1])) == []
    assert names(machine.handle(advanced(1, epoch=0, stage=1))) == ["G2:0", "G2:1"]


def test_sync_tells_the_others_when_its_slowest_interval_has_come_to_a_stage() -> None:
    machine = graph_server(setup(intervals=(2, 1), mode="sync"))
    starts = [tasks(grant(machine, each))[0] for each in (0, 1)]
    assert sent(finish(machine, starts[0]), ServerAdvanced) == []
    assert sent(finish(machine, starts[1]), ServerAdvanced) == [advanced(0, 0, 1)]


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_an_asynchronous_interval_enters_no_further_ahead_than_its_staleness(staleness: int) -> None:
    machine = graph_server(setup(intervals=(1, 1), reads=[{0}, {1}], mode="async", staleness=staleness))
    run_epoch(machine, grant(machine, 0))
    # The first epoch is exact: no one leaves it before all have.
    out = machine.handle(advanced(1, epoch=1))
    entered = 1
    while sent(out, WeightsAsked):
        out = run_epoch(machine, grant(machine, 0, entered))
        entered += 1
    assert entered - 1 == 1 + staleness


def test_the_lead_at_entry_is_counted() -> None:
    machine = graph_server(setup(intervals=(1, 1), reads=[{0}, {1}], mode="async", staleness=1))
    run_epoch(machine, grant(machine, 0))
    machine.handle(advanced(1, epoch=1))
    run_epoch(machine, grant(machine, 0, 1))
    grant(machine, 0, 2)
    assert machine.counts.staleness == {0: 2, 1: 1}


def test_an_asynchronous_gather_reads_what_is_there_and_counts_its_age() -> None:
    machine = graph_server(setup(intervals=(1, 1), layers=2, mode="async", staleness=1))
    finish(machine, tasks(grant(machine, 0))[0])
    ready = tasks(machine.handle(rows(1, stage=0)))
    ready = tasks(finish(machine, tasks(finish(machine, ready[0]))[0]))
    run_epoch(machine, machine.handle(rows(1, stage=2)))
    machine.handle(advanced(1, epoch=1))
    assert ready == []
    (gather,) = tasks(finish(machine, tasks(grant(machine, 0, 1))[0]))
    assert (str(gather.task.stage), gather.task.interval) == ("G2", 0)
    machine.handle(TaskStarted(gather.task))
    assert machine.counts.row_ages == {0: 1, 1: 1}


def test_the_age_of_rows_is_that_at_which_they_are_read() -> None:
    machine = graph_server(setup(intervals=(1, 1), layers=2, mode="async", staleness=1))
    finish(machine, tasks(grant(machine, 0))[0])
    ready = tasks(machine.handle(rows(1, stage=0)))
    finish(machine, tasks(finish(machine, ready[0]))[0])
    run_epoch(machine, machine.handle(rows(1, stage=2)))
    machine.handle(advanced(1, epoch=1))
    (gather,) = tasks(finish(machine, tasks(grant(machine, 0, 1))[0]))
    machine.handle(rows(1, epoch=1, stage=0))
    machine.handle(TaskStarted(gather.task))
    assert machine.counts.row_ages == {0: 2}


def test_a_start_of_a_task_that_is_done_counts_nothing() -> None:
    machine = graph_server(setup(intervals=(1, 1), layers=2, mode="async"))
    finish(machine, tasks(grant(machine, 0))[0])
    (gather,) = tasks(machine.handle(rows(1, stage=0)))
    finish(machine, gather)
    machine.handle(TaskStarted(gather.task))
    assert machine.counts.row_ages == {}


def test_an_asynchronous_gather_waits_for_rows_that_are_late_beyond_its_staleness() -> None:
    machine = graph_server(setup(intervals=(1, 1), reads=[{0, 1}, {1}], mode="async"))
    finish(machine, tasks(grant(machine, 0))[0])
    run_epoch(machine, machine.handle(rows(1)))
    machine.handle(advanced(1, epoch=1))
    run_epoch(machine, grant(machine, 0, 1))
    machine.handle(advanced(1, epoch=2))
    assert names(finish(machine, tasks(grant(machine, 0, 2))[0])) == []
    assert names(machine.handle(rows(1, epoch=1))) == ["G2:0"]


def test_rows_that_are_newer_but_not_new_enough_do_not_end_the_wait() -> None:
    start = Anchor(Epoch(3), Version(3))
    machine = GraphServer(setup(intervals=(1, 1)), ServerId(0))
    machine.handle(Begin(NOW, start, True))
    machine.handle(Proceed(Epoch(4), start))
    finish(machine, tasks(grant(machine, 0, epoch=3, version=3))[0])
    assert names(machine.handle(rows(1, epoch=2))) == []
    assert names(machine.handle(rows(1, epoch=3))) == ["G2:0"]


def test_it_says_what_waits_for_the_barrier_and_what_runs() -> None:
    machine = graph_server(setup(mode="sync"))
    finish(machine, tasks(grant(machine, 0))[0])
    grant(machine, 1)
    assert machine.waiting()[:2] == [
        "graph server 0: G2 of interval 0, train epoch 1 waits for the barrier at epoch 1, stage 0",
        "graph server 0: T1 of interval 1, train epoch 1 runs",
    ]


def test_an_evaluation_passes_all_intervals_with_one_version() -> None:
    machine = graph_server(setup())
    started = EvaluationStarted(Epoch(0), Version(1), ServerId(0))
    out = machine.handle(started)
    assert [(each.task.lane, each.version) for each in tasks(out)] == [("evaluate", 1)] * 2
    assert machine.handle(started) == []
    (finished,) = sent(run_epoch(machine, out), EpochFinished)
    assert (finished.lane, finished.epoch) == ("evaluate", 0)


def test_an_evaluation_reads_its_own_rows_only() -> None:
    machine = graph_server(setup(intervals=(1, 1)))
    machine.handle(rows(1))
    out = machine.handle(EvaluationStarted(Epoch(0), Version(1), ServerId(0)))
    assert names(finish(machine, tasks(out)[0])) == []
    arrived = RowsArrived("evaluate", Epoch(0), StageId(0), IntervalId(1))
    assert names(machine.handle(arrived)) == ["G2:0"]


def test_it_says_what_waits_for_what() -> None:
    machine = graph_server(setup(intervals=(2, 1)))
    finish(machine, tasks(grant(machine, 0))[0])
    assert machine.waiting() == [
        "graph server 0: G2 of interval 0, train epoch 1 waits for rows of epoch 1 from intervals [1, 2]",
        "graph server 0: interval 1 asked weight server 0 for epoch 1",
        "graph server 0: interval 0 owes gradients of phases [1, 2] in epoch 1",
    ]

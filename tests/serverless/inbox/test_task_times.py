"""What Lambdas took: in agreement with what they were told and when."""

import itertools

import pytest

from siafu.base.activity import About
from siafu.serverless.control.ids import InvocationId, SlotId, TaskId
from siafu.serverless.inbox.task_times import TaskTimes

ABOUT = About("graph server 0", 0, 3)
ONE, OTHER = InvocationId(1), InvocationId(2)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> TaskTimes:
    """In a world where each look at the clock is a second later."""
    seconds = itertools.count()
    monkeypatch.setattr("siafu.serverless.inbox.task_times.time.perf_counter", lambda: float(next(seconds)))
    found = TaskTimes()
    found.activity.keep_spans()
    found.invoked(ONE, SlotId(7))
    return found


def test_a_task_lasts_from_its_first_offer_to_its_result(times: TaskTimes) -> None:
    times.offered(ONE, TaskId(1))
    times.offered(ONE, TaskId(1))
    times.came_back(ONE, TaskId(1), "train T0", ABOUT, 100)
    done = times.take(0, {"invocations": 3}, 4)
    (span,) = done.taken.spans
    assert (span.track, span.about, span.moved) == (7, ABOUT, 100)
    assert done.latencies == (span.ended - span.began,) == (2.0,)
    assert done.seconds == {0: {"train T0": 2.0}}
    assert done.counts == {"count": 4, "tasks": 1, "invocations": 3}


def test_seconds_belong_to_the_epoch_of_the_task_whoever_reports_first(times: TaskTimes) -> None:
    for task, epoch, kind in ((1, 0, "evaluate T0"), (2, 1, "train T0")):
        times.offered(ONE, TaskId(task))
        times.came_back(ONE, TaskId(task), kind, ABOUT._replace(epoch=epoch), 0)
    # The next epoch's training has ended before this one's evaluation.
    assert times.take(1, {}, 1).seconds == {0: {"evaluate T0": 1.0}, 1: {"train T0": 1.0}}
    assert times.take(0, {}, 1).seconds == {}


def test_tasks_that_a_lambda_is_told_of_early_do_not_overlap(times: TaskTimes) -> None:
    for task in (1, 2, 3):
        times.offered(ONE, TaskId(task))
    for task in (1, 2, 3):
        times.came_back(ONE, TaskId(task), "train T0", ABOUT, 0)
    done = times.take(0, {}, 1)
    spans = done.taken.spans
    assert all(first.ended <= second.began for first, second in itertools.pairwise(spans))
    assert done.latencies == (3.0, 3.0, 3.0)


def test_counts_are_those_since_it_was_last_asked(times: TaskTimes) -> None:
    times.take(0, {"invocations": 3, "gb_seconds": 1.5}, 2)
    assert times.take(1, {"invocations": 5, "gb_seconds": 1.5}, 2).counts == {
        "count": 2,
        "tasks": 0,
        "invocations": 2,
        "gb_seconds": 0.0,
    }


def test_results_of_lambdas_that_are_gone_or_were_never_told_count_nothing(times: TaskTimes) -> None:
    times.offered(ONE, TaskId(1))
    times.ended(ONE)
    times.came_back(ONE, TaskId(1), "train T0", ABOUT, 0)
    times.offered(OTHER, TaskId(1))
    times.came_back(OTHER, TaskId(1), "train T0", ABOUT, 0)
    assert times.take(0, {}, 1).latencies == ()

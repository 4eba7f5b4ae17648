"""One controller: events in, instructions out."""

import pytest

from siafu.errors import BadInput
from siafu.serverless.controller import Controller
from siafu.serverless.controller_options import ControllerOptions
from siafu.serverless.events import (
    ClockAdvanced,
    CountChanged,
    InvocationEnded,
    LambdaAsks,
    ResultArrived,
    TaskQueued,
    TaskReturned,
    TasksAbandoned,
)
from siafu.serverless.failure import Failure, FailureKind
from siafu.serverless.ids import InvocationId, PeerId, TaskId
from siafu.serverless.instructions import (
    Cancel,
    Deliver,
    Dismiss,
    Drop,
    Fail,
    Instruction,
    Invoke,
    OfferTask,
    WakeAt,
)


class Small:
    """A controller and a clock, in few words. A Lambda's peer is its number, or that with a letter for a twin."""

    def __init__(self, count: int = 1, spares: int = 1, **options: float) -> None:
        given = {"ratio": 2.0, "floor": 1.0, "default": 10.0, "start": 5.0, "lifetime": 100.0, **options}
        self.controller = Controller(
            ControllerOptions(where="function f, region r", count=count, spares=spares, **given),  # type: ignore[arg-type]
            jitter=lambda number: 0.0,
        )
        self.now = 0.0

    def at(self, now: float) -> list[Instruction]:
        self.now = now
        return self.controller.handle(ClockAdvanced(now))

    def queue(self, task: int, kind: str = "T1", priority: tuple[int, ...] = ()) -> list[Instruction]:
        return self.controller.handle(TaskQueued(self.now, TaskId(task), kind, priority))

    def ask(self, invocation: int, twin: str = "") -> list[Instruction]:
        peer = PeerId(f"{invocation}{twin}")
        return self.controller.handle(LambdaAsks(self.now, InvocationId(invocation), peer))

    def result(self, invocation: int, task: int, valid: bool = True) -> list[Instruction]:
        return self.controller.handle(ResultArrived(self.now, InvocationId(invocation), TaskId(task), valid))

    def give_back(self, invocation: int, task: int, why: str = "no time left") -> list[Instruction]:
        return self.controller.handle(TaskReturned(self.now, InvocationId(invocation), TaskId(task), why))

    def end(self, invocation: int, kind: FailureKind | None = None) -> list[Instruction]:
        failure = None if kind is None else Failure(kind, "function f, region r", "so it says")
        return self.controller.handle(InvocationEnded(self.now, InvocationId(invocation), failure))

    def change_count(self, count: int) -> list[Instruction]:
        return self.controller.handle(CountChanged(self.now, count))


def of(kind: type[Instruction], out: list[Instruction]) -> list[Instruction]:
    return [each for each in out if isinstance(each, kind)]


def offered(out: list[Instruction]) -> list[tuple[int, int]]:
    """Which Lambda is given which task."""
    return [(each.invocation, each.task) for each in out if isinstance(each, OfferTask)]


def invoked(out: list[Instruction]) -> list[int]:
    return [each.invocation for each in out if isinstance(each, Invoke)]


def failure(out: list[Instruction]) -> str:
    [fail] = [each for each in out if isinstance(each, Fail)]
    assert out[-1] is fail
    assert "\n" not in fail.message
    return fail.message


# Giving out


def test_a_task_that_waits_has_a_lambda_invoked() -> None:
    small = Small()
    assert invoked(small.queue(7)) == [0]


def test_a_lambda_that_asks_is_given_the_task() -> None:
    small = Small()
    small.queue(7)
    assert offered(small.ask(0)) == [(0, 7)]


def test_no_more_lambdas_are_invoked_than_may_be() -> None:
    small = Small(count=2)
    assert [len(invoked(small.queue(task))) for task in range(4)] == [1, 1, 0, 0]


def test_an_idle_lambda_is_given_a_new_task_and_none_is_invoked() -> None:
    small = Small(count=2)
    small.queue(0)
    small.ask(0)
    small.result(0, 0)
    assert small.ask(0) == []
    out = small.queue(1)
    assert (offered(out), invoked(out)) == ([(0, 1)], [])


def test_the_task_with_the_lowest_priority_key_goes_first() -> None:
    small = Small()
    small.queue(0, priority=(3,))
    small.queue(1, priority=(1,))
    small.queue(2, priority=(2,))
    order = []
    for _ in range(3):
        [(_, task)] = offered(small.ask(0))
        order.append(task)
        small.result(0, task)
    assert order == [1, 2, 0]


def test_of_two_idle_lambdas_the_one_that_worked_last_goes_on() -> None:
    small = Small(count=2)
    small.queue(0)
    small.queue(1)
    for invocation in (0, 1):
        small.ask(invocation)
    small.result(0, 0)
    small.ask(0)
    small.result(1, 1)
    small.ask(1)
    assert offered(small.queue(2)) == [(1, 2)]


# Results


def test_the_first_result_is_delivered() -> None:
    small = Small()
    small.queue(7)
    small.ask(0)
    assert Deliver(TaskId(7), InvocationId(0)) in small.result(0, 7)
    assert small.controller.num_outstanding == 0


def test_a_second_result_is_dropped_and_counted() -> None:
    small = Small()
    small.queue(7)
    small.ask(0)
    small.result(0, 7)
    assert of(Drop, small.result(0, 7)) == [Drop(TaskId(7), InvocationId(0), "duplicate")]
    assert small.controller.counts.dropped["duplicate"] == 1


def test_garbage_is_dropped_and_its_lambda_given_up() -> None:
    small = Small(count=2)
    small.queue(7)
    small.ask(0)
    out = small.result(0, 7, valid=False)
    assert of(Drop, out) == [Drop(TaskId(7), InvocationId(0), "garbage")]
    assert Cancel(InvocationId(0)) in out
    assert invoked(out) == [1]
    assert small.ask(0) == [Dismiss(InvocationId(0), PeerId("0"))]
    assert offered(small.ask(1)) == [(1, 7)]


def test_a_result_of_a_lambda_that_was_not_given_the_task_is_a_strangers() -> None:
    small = Small()
    small.queue(7)
    assert of(Drop, small.result(0, 7)) == [Drop(TaskId(7), InvocationId(0), "stranger")]


def test_a_result_that_comes_after_its_lambdas_end_counts() -> None:
    small = Small()
    small.queue(7)
    small.ask(0)
    small.end(0)
    assert Deliver(TaskId(7), InvocationId(0)) in small.result(0, 7)


def test_a_result_of_an_abandoned_task_is_dropped() -> None:
    small = Small()
    small.queue(7)
    small.ask(0)
    small.controller.handle(TasksAbandoned(0.0))
    assert of(Deliver, small.result(0, 7)) == []
    assert offered([*small.queue(8), *small.ask(0)]) == [(0, 8)]


# Late


def test_before_there_is_a_mean_a_task_is_late_after_the_default() -> None:
    small = Small(count=2)
    small.queue(7)
    small.ask(0)
    assert invoked(small.at(9.9)) == []
    assert invoked(small.at(10.0)) == [1]
    assert small.controller.counts.relaunched == 1


def learned(seconds: float, **options: float) -> Small:
    """A controller that has seen a task of kind T1 take so long, with Lambda 0 at task 1 from then on."""
    small = Small(count=2, **options)
    small.queue(0)
    small.ask(0)
    small.now = seconds
    small.result(0, 0)
    small.queue(1)
    assert offered(small.ask(0)) == [(0, 1)]
    return small


def test_a_task_is_late_after_a_multiple_of_its_kinds_mean() -> None:
    small = learned(3.0)
    assert small.controller.counts.relaunched == 0
    small.at(8.9)
    assert small.controller.counts.relaunched == 0
    small.at(9.0)
    assert small.controller.counts.relaunched == 1


def test_but_not_within_the_floor() -> None:
    small = learned(0.01)
    small.at(1.0)
    assert small.controller.counts.relaunched == 0
    small.at(1.01)
    assert small.controller.counts.relaunched == 1


def test_a_late_lambda_that_answers_first_wins_and_the_other_is_dropped() -> None:
    small = learned(1.0)
    small.at(3.0)
    assert offered(small.ask(1)) == [(1, 1)]
    assert Deliver(TaskId(1), InvocationId(0)) in small.result(0, 1)
    assert of(Drop, small.result(1, 1)) == [Drop(TaskId(1), InvocationId(1), "duplicate")]


def test_a_further_attempt_is_given_twice_as_long() -> None:
    small = learned(1.0)
    small.at(3.0)
    small.ask(1)
    small.at(6.9)
    assert small.controller.counts.relaunched == 1
    small.at(7.0)
    assert small.controller.counts.relaunched == 2


def test_a_lambda_that_stays_silent_for_twice_its_time_is_cancelled() -> None:
    small = learned(1.0)
    assert of(Cancel, small.at(3.0)) == []
    assert of(Cancel, small.at(5.0)) == [Cancel(InvocationId(0))]


def test_a_late_lambda_that_comes_back_is_given_tasks_if_there_is_room() -> None:
    small = learned(1.0)
    small.at(3.0)
    small.ask(1)
    small.result(0, 1)
    small.queue(2)
    assert offered(small.ask(0)) == [(0, 2)]


def test_and_is_dismissed_if_others_took_its_place() -> None:
    small = Small(count=1)
    small.queue(0)
    small.ask(0)
    small.at(10.0)
    small.ask(1)
    assert small.ask(0) == [Dismiss(InvocationId(0), PeerId("0"))]


def test_one_straggler_does_not_make_all_wait_longer() -> None:
    small = learned(1.0)
    small.now = 9.0
    small.result(0, 1)
    small.queue(2)
    small.ask(0)
    # The straggler took 8 s and counted as 2, which is just late: the mean is 1.5.
    small.at(11.9)
    assert small.controller.counts.relaunched == 0
    small.at(12.0)
    assert small.controller.counts.relaunched == 1


def test_a_clock_that_is_set_back_does_not_stop_time() -> None:
    small = Small(count=2)
    small.now = 1000.0
    small.queue(7)
    small.ask(0)
    small.at(1009.0)
    out = small.at(-500.0)
    small.at(-499.5)
    assert small.controller.counts.relaunched == 0
    assert of(WakeAt, out) == [WakeAt(-499.0)]
    assert invoked(small.at(-499.0)) == [1]


def test_woken_too_early_it_asks_to_be_woken_again() -> None:
    small = Small()
    small.queue(7)
    assert small.at(1.0) == [WakeAt(5.0)]


# Lambdas come and go


def test_the_task_of_a_lambda_that_died_goes_to_another_at_once() -> None:
    small = Small()
    small.queue(7)
    small.ask(0)
    assert invoked(small.end(0, FailureKind.CRASHED)) == [1]
    assert offered(small.ask(1)) == [(1, 7)]


def test_a_task_given_back_goes_to_whoever_asks_next_and_its_lambda_is_kept() -> None:
    small = Small(count=2)
    small.queue(7)
    small.ask(0)
    out = small.give_back(0, 7)
    assert of(Cancel, out) == of(Drop, out) == []
    assert offered(small.ask(0)) == [(0, 7)]


def test_the_second_of_an_invocation_that_was_run_twice_is_dismissed() -> None:
    small = Small(count=2)
    small.queue(7)
    small.queue(8)
    small.ask(0)
    assert small.ask(0, twin="b") == [Dismiss(InvocationId(0), PeerId("0b"))]
    assert small.controller.counts.strangers == 1


def test_a_lambda_that_ended_is_dismissed_if_it_asks_all_the_same() -> None:
    small = Small()
    small.queue(7)
    small.end(0, FailureKind.UNAVAILABLE)
    assert small.ask(0) == [Dismiss(InvocationId(0), PeerId("0"))]


def test_a_lambda_whose_end_is_not_told_is_over_after_its_lifetime() -> None:
    small = Small(count=1, spares=0, lifetime=12.0, default=30.0)
    small.queue(7)
    small.ask(0)
    assert invoked(small.at(11.9)) == []
    assert invoked(small.at(12.0)) == [1]


def test_a_lambda_that_hangs_leaves_its_place_but_not_its_slot() -> None:
    small = Small(count=1, spares=1)
    small.queue(7)
    small.ask(0)
    assert of(Invoke, small.at(10.0)) == [Invoke(InvocationId(1), 1)]  # type: ignore[arg-type]


def test_without_spares_its_end_is_waited_for() -> None:
    small = Small(count=1, spares=0)
    small.queue(7)
    small.ask(0)
    assert invoked(small.at(10.0)) == []
    assert of(Invoke, small.end(0, FailureKind.TIMED_OUT)) == [Invoke(InvocationId(1), 0)]  # type: ignore[arg-type]


def test_fewer_lambdas_are_had_by_dismissing_those_that_ask() -> None:
    small = Small(count=2)
    small.queue(0)
    small.queue(1)
    small.ask(0)
    small.change_count(1)
    assert small.ask(1) == [Dismiss(InvocationId(1), PeerId("1"))]


def test_and_the_idle_at_once() -> None:
    small = Small(count=1)
    small.queue(0)
    small.ask(0)
    small.result(0, 0)
    small.ask(0)
    assert small.change_count(0) == [Dismiss(InvocationId(0), PeerId("0"))]


def test_more_lambdas_are_invoked_when_there_may_be_more() -> None:
    small = Small(count=1)
    for task in range(3):
        small.queue(task)
    assert invoked(small.change_count(3)) == [1, 2]


# Setbacks


def test_after_throttling_it_waits_twice_as_long_each_time() -> None:
    small = Small(wait=0.2, longest_wait=1.0)
    small.queue(7)
    waits = []
    for invocation in range(5):
        [wake] = of(WakeAt, small.end(invocation, FailureKind.THROTTLED))
        assert isinstance(wake, WakeAt)
        waits.append(round(wake.time - small.now, 6))
        assert invoked(small.at(wake.time - 0.01)) == []
        assert invoked(small.at(wake.time)) == [invocation + 1]
    assert waits == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_many_throttled_at_once_are_one_setback() -> None:
    small = Small(count=20, setbacks=2)
    for task in range(20):
        small.queue(task)
    for invocation in range(20):
        assert of(Fail, small.end(invocation, FailureKind.THROTTLED)) == []


def test_a_lambda_that_comes_ends_the_row_of_setbacks() -> None:
    small = Small(setbacks=2)
    small.queue(0)
    for round_ in range(5):
        small.end(2 * round_, FailureKind.THROTTLED)
        small.at(small.now + 1)
        small.ask(2 * round_ + 1)
        out = small.end(2 * round_ + 1, FailureKind.CRASHED)
        assert of(Fail, out) == []


@pytest.mark.parametrize("kind", [FailureKind.THROTTLED, FailureKind.UNAVAILABLE])
def test_it_gives_up_when_the_platform_gives_no_lambda_for_long(kind: FailureKind) -> None:
    small = Small(setbacks=3, first_setbacks=1)
    small.queue(7)
    for invocation in range(2):
        assert of(Fail, small.end(invocation, kind)) == []
        small.at(small.now + 60)
    assert "3 tries: so it says (function f, region r); " in failure(small.end(2, kind))


def test_it_does_not_give_up_while_a_lambda_works() -> None:
    small = Small(count=2, setbacks=1, default=1000.0, lifetime=2000.0)
    small.queue(0)
    small.queue(1)
    small.ask(0)
    for invocation in range(1, 5):
        assert of(Fail, small.end(invocation, FailureKind.THROTTLED)) == []
        small.at(small.now + 60)


def test_lambdas_that_never_ask_are_a_failure_that_names_the_network() -> None:
    small = Small(spares=9, first_setbacks=2)
    small.queue(7)
    small.at(5.0)
    small.at(6.0)
    out = small.at(11.0)
    assert "no word from a Lambda in 5 s" in failure(out)
    assert "security group" in failure(out)


@pytest.mark.parametrize("kind", [FailureKind.NO_FUNCTION, FailureKind.DENIED, FailureKind.UNFIT])
def test_what_cannot_be_mended_fails_at_once(kind: FailureKind) -> None:
    small = Small()
    small.queue(7)
    message = failure(small.end(0, kind))
    assert message.startswith("a Lambda cannot be had: so it says (function f, region r); ")


def test_a_failure_when_nothing_is_to_be_done_is_no_failure_of_the_run() -> None:
    small = Small()
    small.queue(7)
    small.controller.handle(TasksAbandoned(0.0))
    assert of(Fail, small.end(0, FailureKind.DENIED)) == []


@pytest.mark.parametrize("kind", [FailureKind.CRASHED, FailureKind.OUT_OF_MEMORY])
def test_a_task_that_no_lambda_survives_is_a_failure_that_says_why(kind: FailureKind) -> None:
    small = Small(attempts=3)
    small.queue(7, kind="train ∇T1")
    for invocation in range(2):
        small.ask(invocation)
        assert of(Fail, small.end(invocation, kind)) == []
    small.ask(2)
    assert failure(small.end(2, kind)).startswith("train ∇T1 came to nothing 3 times, last: so it says")


def test_a_task_given_back_again_and_again_is_a_failure_with_the_lambdas_words() -> None:
    small = Small(attempts=2)
    small.queue(7)
    small.ask(0)
    small.give_back(0, 7)
    small.ask(0)
    assert "ValueError: shapes" in failure(small.give_back(0, 7, "ValueError: shapes"))


def test_after_a_failure_it_says_nothing_more() -> None:
    small = Small()
    small.queue(7)
    small.end(0, FailureKind.DENIED)
    assert small.queue(8) == small.ask(0) == small.at(1000.0) == []


def test_it_says_what_waits_for_what() -> None:
    small = Small()
    small.queue(7)
    small.queue(8)
    small.ask(0)
    assert small.controller.waiting() == [
        "task 7 (T1) is at Lambda 0, given out 1 times",
        "task 8 (T1) waits for a Lambda, given out 0 times",
        "Lambda 0 in slot 0 is trusted, asked for at 0.000",
    ]
    assert (small.controller.num_waiting, small.controller.num_outstanding) == (1, 2)


@pytest.mark.parametrize(
    "options",
    [{"count": 0}, {"spares": -1}, {"ratio": 1.0}, {"floor": 0.0}, {"attempts": 0}, {"setbacks": 0}],
)
def test_options_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Small(**options)  # type: ignore[arg-type]

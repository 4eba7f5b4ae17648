"""One controller: Lambdas that come and go, do not come, and when it gives up."""

import pytest

from siafu.base.errors import BadInput
from siafu.serverless.control.events import TasksAbandoned
from siafu.serverless.control.failure import FailureKind
from siafu.serverless.control.ids import InvocationId, PeerId, SlotId
from siafu.serverless.control.instructions import CancelInvocation, DismissLambda, Drop, Fail, Invoke, WakeAt
from tests.serverless.small_controller import Small, failure, invoked, of, offered

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
    assert of(CancelInvocation, out) == of(Drop, out) == []
    assert offered(small.ask(0)) == [(0, 7)]


def test_the_second_of_an_invocation_that_was_run_twice_is_dismissed() -> None:
    small = Small(count=2)
    small.queue(7)
    small.queue(8)
    small.ask(0)
    assert small.ask(0, twin="b") == [DismissLambda(InvocationId(0), PeerId("0b"))]
    assert small.controller.counts.strangers == 1


def test_a_lambda_that_ended_is_dismissed_if_it_asks_all_the_same() -> None:
    small = Small()
    small.queue(7)
    small.end(0, FailureKind.UNAVAILABLE)
    assert small.ask(0) == [DismissLambda(InvocationId(0), PeerId("0"))]


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
    assert of(Invoke, small.at(10.0)) == [Invoke(InvocationId(1), SlotId(1))]


def test_without_spares_its_end_is_waited_for() -> None:
    small = Small(count=1, spares=0)
    small.queue(7)
    small.ask(0)
    assert invoked(small.at(10.0)) == []
    assert of(Invoke, small.end(0, FailureKind.TIMED_OUT)) == [Invoke(InvocationId(1), SlotId(0))]


def test_fewer_lambdas_are_had_by_dismissing_those_that_ask() -> None:
    small = Small(count=2)
    small.queue(0)
    small.queue(1)
    small.ask(0)
    small.change_count(1)
    assert small.ask(1) == [DismissLambda(InvocationId(1), PeerId("1"))]


def test_and_the_idle_at_once() -> None:
    small = Small(count=1)
    small.queue(0)
    small.ask(0)
    small.result(0, 0)
    small.ask(0)
    assert small.change_count(0) == [DismissLambda(InvocationId(0), PeerId("0"))]


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

"""One controller: what it does with tasks, results and late Lambdas."""

from siafu.serverless.control.events import TasksAbandoned
from siafu.serverless.control.ids import InvocationId, PeerId, TaskId
from siafu.serverless.control.instructions import CancelInvocation, Deliver, DismissLambda, Drop, WakeAt
from tests.serverless.small_controller import Small, invoked, of, offered

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


# Several in hand


def test_while_all_are_at_a_task_who_asks_is_given_the_next() -> None:
    small = Small(count=2, places=2)
    for task in range(4):
        small.queue(task)
    given = [offered(small.ask(invocation)) for invocation in (0, 1, 0, 1)]
    assert given == [[(0, 0)], [(1, 1)], [(0, 2)], [(1, 3)]]


def test_but_not_while_one_that_has_been_asked_for_may_still_come() -> None:
    small = Small(count=2, places=2)
    for task in range(2):
        small.queue(task)
    assert offered(small.ask(0)) + offered(small.ask(0)) == [(0, 0)]
    assert offered(small.ask(1)) == [(1, 1)]


def test_a_lambda_that_asked_before_is_given_a_task_that_comes_later() -> None:
    small = Small(count=1, places=2)
    small.queue(0)
    small.ask(0)
    small.ask(0)
    assert offered(small.queue(1)) == [(0, 1)]
    assert offered(small.queue(2)) == []


def test_a_large_task_waits_where_a_small_one_is_given() -> None:
    small = Small(count=1, places=4)
    for task, places in enumerate([2, 2, 2, 3]):
        small.queue(task, places=places)
    assert [offered(small.ask(0)) for _ in range(4)] == [[(0, 0)], [(0, 1)], [(0, 3)], []]
    assert offered(small.result(0, 0)) == []
    assert offered(small.result(0, 1)) == [(0, 2)]


def test_a_small_task_does_not_leave_its_home_for_a_lambda_with_room() -> None:
    small = Small(count=2, places=3)
    for task in range(2):
        small.queue(task, home=task, places=2)
    for invocation in (0, 0, 0, 1, 1, 1):
        small.ask(invocation)
    assert offered(small.queue(2, home=0, places=2)) == [(0, 2)]
    assert offered(small.queue(3, home=0, places=2)) == []
    assert offered(small.queue(4, home=0, places=3)) == [(0, 4)]


def test_all_that_a_dead_lambda_had_in_hand_goes_to_others() -> None:
    small = Small(count=1, places=2)
    small.queue(0)
    small.queue(1)
    small.ask(0)
    small.ask(0)
    assert invoked(small.end(0)) == [1]
    assert offered(small.ask(1)) + offered(small.ask(1)) == [(1, 0), (1, 1)]


def test_the_next_in_hand_is_late_only_once_its_turn_has_come() -> None:
    small = Small(count=1, places=2, spares=2)
    small.queue(0, kind="long")
    small.queue(1, kind="short")
    small.ask(0)
    small.ask(0)
    small.at(9.0)
    small.result(0, 0)
    small.at(18.9)
    assert small.controller.counts.relaunched == 0
    small.at(19.0)
    assert small.controller.counts.relaunched == 1


def test_how_long_a_task_takes_is_counted_from_its_turn() -> None:
    small = Small(count=1, places=2, spares=2)
    small.queue(0)
    small.queue(1)
    small.ask(0)
    small.ask(0)
    small.now = 2.0
    small.result(0, 0)
    small.now = 4.0
    small.result(0, 1)
    small.queue(2)
    assert offered(small.ask(0)) == [(0, 2)]
    # Both took 2 s: twice the mean is 4.
    small.at(7.9)
    assert small.controller.counts.relaunched == 0
    small.at(8.0)
    assert small.controller.counts.relaunched == 1


def test_one_too_many_ends_what_it_has_in_hand_first() -> None:
    small = Small(count=2, places=2)
    for task in range(4):
        small.queue(task)
    for invocation in (0, 1, 0, 1):
        small.ask(invocation)
    small.change_count(1)
    assert of(DismissLambda, small.result(0, 0) + small.ask(0)) == []
    assert of(DismissLambda, small.result(0, 2)) == [DismissLambda(InvocationId(0), PeerId("0"))]


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
    assert CancelInvocation(InvocationId(0)) in out
    assert invoked(out) == [1]
    assert small.ask(0) == [DismissLambda(InvocationId(0), PeerId("0"))]
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


def test_once_there_is_a_mean_it_holds_for_those_at_work_too() -> None:
    small = Small(count=2, spares=2)
    small.queue(7)
    small.queue(8)
    small.ask(0)
    small.ask(1)
    small.at(1.0)
    small.result(0, 7)
    small.at(1.9)
    assert small.controller.counts.relaunched == 0
    small.at(2.0)
    assert small.controller.counts.relaunched == 1


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
    assert of(CancelInvocation, small.at(3.0)) == []
    assert of(CancelInvocation, small.at(5.0)) == [CancelInvocation(InvocationId(0))]


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
    assert small.ask(0) == [DismissLambda(InvocationId(0), PeerId("0"))]


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

"""The autotuner: a pure function of how the queues stood."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.serverless.control.autotuner import MEMORY, first_count, next_count
from siafu.serverless.control.queue_watch import Period, QueueWatch
from tests.serverless.queueing import Shop, fixed, tuned

LIMIT = 100
GRID = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100]


def hungry(count: int, seconds: float = 1.0) -> Period:
    return Period(count, seconds, drained=0.9, hungry=0.4, most=64)


def backlog(count: int, seconds: float = 1.0) -> Period:
    return Period(count, seconds, drained=0.0, hungry=0.0, most=64)


def content(count: int, seconds: float = 1.0) -> Period:
    return Period(count, seconds, drained=0.5, hungry=0.0, most=64)


def judged(period: Period) -> list[Period]:
    return [period] * 3


def random_shop(seed: int) -> Shop:
    source = random.Random(seed)
    return Shop(
        mode=source.choice(["sync", "pipe"]),
        intervals=source.choice([4, 8, 16, 64, 128]),
        cores=source.choice([1, 2, 8]),
        gather=10 ** source.uniform(-3, -0.5),
        tensor=10 ** source.uniform(-3, 0),
        latency=source.choice([0.0, 0.05, 0.3]),
        carry=source.choice([0.0, 0.0, 10 ** source.uniform(-4, -1)]),
        crowd=source.choice([1e9, 2.0, 8.0, 30.0]),
    )


@pytest.mark.parametrize("start", [1, 100])
@pytest.mark.slow
def test_it_settles_within_a_fifth_of_the_best_fixed_count(start: int) -> None:
    missed_by_standing_still = 0
    for seed in range(15):
        shop = random_shop(seed)
        best = min(fixed(shop, count) for count in GRID)
        history = tuned(shop, start, 50, lambda history: next_count(history, LIMIT))
        settled = [each.seconds for each in history[30:]]
        assert sum(settled) / len(settled) <= 1.2 * best, (seed, shop)
        missed_by_standing_still += fixed(shop, start) > 1.2 * best
    assert missed_by_standing_still >= 3


def test_few_lambdas_will_do_where_the_cores_are_slow() -> None:
    shop = Shop("pipe", intervals=64, cores=2, gather=0.1, tensor=0.1, latency=0.05)
    history = tuned(shop, 64, 40, lambda history: next_count(history, LIMIT))
    assert history[-1].count <= 8


def test_many_are_used_where_latency_is_long() -> None:
    shop = Shop("pipe", intervals=64, cores=8, gather=0.001, tensor=0.01, latency=0.5)
    history = tuned(shop, 1, 40, lambda history: next_count(history, LIMIT))
    assert history[-1].count >= 40


def test_it_comes_to_rest() -> None:
    for seed in range(10):
        history = tuned(random_shop(seed), 16, 50, lambda history: next_count(history, LIMIT))
        assert len({each.count for each in history[-15:]}) == 1, seed


def test_lambdas_that_are_in_each_others_way_become_fewer_though_no_queue_shows_it() -> None:
    shop = Shop("pipe", intervals=16, cores=8, gather=0.001, tensor=0.2, latency=0.0, crowd=2.0)
    history = tuned(shop, 16, 30, lambda history: next_count(history, LIMIT))
    assert history[-1].count <= 4


def test_it_starts_with_the_intervals_but_a_hundred_at_most() -> None:
    assert [first_count(each, 1000) for each in (1, 16, 400)] == [1, 16, 100]
    assert first_count(400, 7) == 7


def test_idle_cores_and_waiting_tensor_tasks_mean_more() -> None:
    assert next_count(judged(hungry(4)), LIMIT) == 8


def test_a_queue_that_never_drains_means_fewer() -> None:
    assert next_count(judged(backlog(8)), LIMIT) == 4


def test_the_first_epochs_with_a_count_are_not_judged_for_its_lambdas_have_no_rows_yet() -> None:
    assert next_count([*judged(hungry(4)), hungry(8)], LIMIT) == 8
    assert next_count([*judged(hungry(4)), hungry(8), hungry(8)], LIMIT) == 8


def test_but_one_that_takes_far_too_long_is() -> None:
    assert next_count([content(8), content(8), content(4, 1.6)], LIMIT) != 4


def test_cores_that_starve_are_helped_at_once() -> None:
    starved = Period(1, 1.0, drained=1.0, hungry=0.9, most=64)
    assert next_count([starved], LIMIT) == 2


def test_of_counts_that_are_as_fast_the_fewest_are_kept() -> None:
    history = [*judged(content(8)), *judged(content(4, 1.04)), *judged(content(2, 1.3))]
    assert next_count([*history, *judged(content(3, 1.3))], LIMIT) == 4


def test_more_that_brought_nothing_is_taken_back_and_not_tried_again() -> None:
    history = [hungry(1, 4.0)]
    while len(history) < 60:
        count = next_count(history, LIMIT)
        history.append(hungry(count, max(1.0, 4.0 / count)))
    assert max(each.count for each in history) == 8
    assert {each.count for each in history[30:]} == {4}


def test_after_a_while_it_is_tried_again() -> None:
    history = [*judged(hungry(2, 2.0)), *judged(hungry(8, 0.99)), *[hungry(4)] * MEMORY]
    assert next_count(history, LIMIT) == 8


def test_fewer_that_made_it_slower_is_taken_back() -> None:
    history = [*judged(backlog(8)), *judged(hungry(4, 2.0)), *judged(hungry(6, 1.5))]
    assert next_count(history, LIMIT) == 8


def test_there_are_never_more_than_tasks_to_do() -> None:
    few = Period(100, 1.0, drained=0.5, hungry=0.0, most=16)
    assert next_count([few], LIMIT) == 16


PERIODS = st.builds(
    Period,
    count=st.integers(1, 200),
    seconds=st.floats(1e-3, 1e3),
    drained=st.floats(0, 1),
    hungry=st.floats(0, 1),
    most=st.integers(0, 300),
)


@given(st.lists(PERIODS, min_size=1, max_size=60), st.integers(1, 150))
def test_it_stays_within_its_limit_and_forgets_what_is_old(history: list[Period], limit: int) -> None:
    count = next_count(history, limit)
    assert 1 <= count <= max(1, limit)
    assert count == next_count(history, limit) == next_count(history[-MEMORY:], limit)


def test_the_watch_measures_shares_of_time() -> None:
    watch = QueueWatch(10.0)
    watch.note(10.0, graph_waiting=2, tensor_waiting=0, tensor_running=1)
    watch.note(12.0, graph_waiting=0, tensor_waiting=0, tensor_running=5)
    watch.note(13.0, graph_waiting=0, tensor_waiting=3, tensor_running=4)
    assert watch.end_period(14.0, 4) == Period(4, 4.0, drained=0.5, hungry=0.25, most=7)


def test_a_new_period_begins_with_the_queues_as_they_are() -> None:
    watch = QueueWatch(0.0)
    watch.note(0.0, graph_waiting=0, tensor_waiting=3, tensor_running=2)
    watch.end_period(1.0, 2)
    assert watch.end_period(3.0, 2) == Period(2, 2.0, drained=1.0, hungry=1.0, most=5)


def test_a_clock_that_goes_back_takes_no_time_away() -> None:
    watch = QueueWatch(5.0)
    watch.note(4.0, graph_waiting=1, tensor_waiting=0, tensor_running=0)
    assert watch.end_period(6.0, 1) == Period(1, 1.0, drained=0.0, hungry=0.0, most=0)

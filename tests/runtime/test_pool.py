"""Pool: what jobs took is known before what follows from them."""

import itertools
import threading
import time
from collections.abc import Callable

import pytest
import torch

from siafu.base.activity import About
from siafu.runtime.pool import After, Pool


def failed(error: BaseException) -> None:
    raise error


def test_a_jobs_time_is_counted_before_what_follows_from_it() -> None:
    pool, seen, done = Pool(1, failed), [], threading.Event()

    def then() -> None:
        seen.append(pool.activity.take(0))
        done.set()

    pool.activity.keep_spans()
    pool.add((0,), "train T0", lambda: After(then, 123), About("graph server 0", 0, 7))
    pool.start()
    assert done.wait(10)
    pool.close()
    ((span,),) = (taken.spans for taken in seen)
    assert (span.about.interval, span.kind, span.track, span.moved) == (7, "train T0", 0, 123)
    assert seen[0].busy_seconds == {"train T0": span.ended - span.began}


def test_no_two_spans_of_a_thread_overlap() -> None:
    pool, left, done = Pool(3, failed), threading.Semaphore(0), 60
    pool.activity.keep_spans()
    for number in range(done):
        about = About(f"graph server {number % 2}", 0, number)
        pool.add((number % 5,), "train T0", lambda: After(left.release), about)
    pool.start()
    for _ in range(done):
        assert left.acquire(timeout=10)
    pool.close()
    spans = pool.activity.take(0).spans
    assert len(spans) == done
    for track in range(3):
        mine = sorted((span.began, span.ended) for span in spans if span.track == track)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(mine))


def test_a_job_whose_follow_up_fails_ends_the_run() -> None:
    errors: list[BaseException] = []
    told = threading.Event()

    def fail(error: BaseException) -> None:
        errors.append(error)
        told.set()

    def then() -> None:
        raise ValueError("after")

    pool = Pool(1, fail)
    pool.add((0,), "x", lambda: After(then))
    pool.start()
    assert told.wait(10)
    pool.close()
    assert str(errors[0]) == "after"


def test_pytorch_gives_each_job_one_thread() -> None:
    """However many it has elsewhere: a product that is split over threads has other bits."""
    pool, seen, done = Pool(2, failed), [], threading.Barrier(3)

    def job() -> None:
        seen.append(torch.get_num_threads())
        done.wait(10)

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for _ in range(2):
            pool.add((0,), "train T0", job)
        pool.start()
        done.wait(10)
        pool.close()
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]


def test_short_jobs_that_follow_each_other_wake_no_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # By this clock every job is over at once, but for those that meet another: they are as long as a thread is worth.
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr("time.thread_time", lambda: now)
    met, ended = threading.Barrier(2), threading.Event()
    ran_on: set[str] = set()
    errors: list[BaseException] = []
    pool = Pool(2, errors.append)

    def meet() -> None:
        nonlocal now
        met.wait(60)
        now += 1.0

    def short() -> None:
        ran_on.add(threading.current_thread().name)

    def add(kind: str, job: Callable[[], None], count: int) -> After:
        def then() -> None:
            for _ in range(count):
                pool.add((0,), kind, job)
            pool.add((1,), "end", lambda: After(ended.set))

        return After(then)

    def run(kind: str, job: Callable[[], None], count: int) -> None:
        while pool._asleep < 2:
            time.sleep(0.001)
        ended.clear()
        pool.add((0,), "begin", lambda: add(kind, job, count))
        assert ended.wait(60)

    pool.start()
    run("short", short, 20)  # their length is not known yet
    run("long", meet, 2)
    run("long", meet, 2)
    ran_on.clear()
    run("short", short, 50)
    pool.close()
    assert not errors
    assert len(ran_on) == 1


def test_of_two_threads_that_are_awake_one_leaves_short_jobs_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # By these clocks, every job is over at once.
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("time.thread_time", lambda: 0.0)
    pool, met, ended, lock = Pool(2, failed), threading.Barrier(2), threading.Event(), threading.Lock()
    under_way = most = 0

    def short() -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.001)
        with lock:
            under_way -= 1

    def meet() -> After:
        met.wait(60)
        return After(lambda: add(25))

    def add(count: int) -> None:
        for _ in range(count):
            pool.add((0,), "short", short)
        pool.add((1,), "end", lambda: After(ended.set))

    add(1)  # from now on, its length is known
    pool.start()
    assert ended.wait(60)
    ended.clear()
    most = 0
    for _ in range(2):
        pool.add((0,), "unknown", meet)  # both threads are awake when these end
    assert ended.wait(60)
    pool.close()
    assert most == 1


@pytest.mark.parametrize(
    ("seconds", "used", "is_short"),
    [(5e-3, 50e-6, True), (5e-3, 500e-6, False), (50e-3, 50e-6, False)],
    ids=["waited for the GIL", "computed", "waited for a disk"],
)
def test_a_job_is_short_by_the_time_that_it_computes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, used: float, is_short: bool
) -> None:
    now = [0.0, 0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("time.thread_time", lambda: now[1])
    pool, ended = Pool(1, failed), threading.Event()

    def job() -> After:
        now[0] += seconds
        now[1] += used
        return After(ended.set)

    pool.add((0,), "job", job)
    pool.start()
    assert ended.wait(60)
    pool.close()
    assert pool._is_short("job") == is_short


def test_one_job_that_is_held_up_makes_short_ones_no_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr("time.thread_time", lambda: now)
    pool, ended = Pool(1, failed), threading.Event()

    def job(seconds: float) -> None:
        nonlocal now
        now += seconds

    for each in [50e-6] * 5 + [5e-3]:
        pool.add((0,), "job", lambda each=each: job(each))  # type: ignore[misc]
    pool.add((1,), "end", lambda: After(ended.set))
    pool.start()
    assert ended.wait(60)
    pool.close()
    assert pool._is_short("job")

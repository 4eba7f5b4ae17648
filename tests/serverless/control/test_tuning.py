"""The number of Lambdas, chosen after every epoch from how the queues stood."""

import threading

import pytest

from siafu.serverless.control import tuning
from siafu.serverless.control.autotuner import next_count
from siafu.serverless.control.queue_watch import Period
from siafu.serverless.control.tuning import Tuning


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes when the test says so."""
    now = [100.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: now[0])
    return now


def test_while_tensor_tasks_wait_and_cores_idle_there_are_more_lambdas(clock: list[float]) -> None:
    found = Tuning(first=2, limit=8)
    found.tensor_queue(waiting=6, running=2)
    clock[0] += 1.0
    assert found.end_epoch() == 4
    clock[0] += 1.0
    assert found.end_epoch() == 8


def test_there_are_never_more_than_may_be(clock: list[float]) -> None:
    found = Tuning(first=2, limit=3)
    found.tensor_queue(waiting=60, running=2)
    clock[0] += 1.0
    assert found.end_epoch() == 3


def test_while_graph_tasks_wait_there_are_fewer(clock: list[float]) -> None:
    found = Tuning(first=4, limit=8)
    found.graph_queue(waiting=3)
    found.tensor_queue(waiting=1, running=4)
    for _ in range(12):
        clock[0] += 1.0
        count = found.end_epoch()
    assert count < 4


def test_an_epoch_is_judged_by_the_shares_of_its_time(clock: list[float]) -> None:
    found = Tuning(first=2, limit=8)
    found.tensor_queue(waiting=6, running=2)
    clock[0] += 1.0
    found.graph_queue(waiting=1)
    clock[0] += 3.0
    assert found.end_epoch() == next_count([Period(2, 4.0, drained=0.25, hungry=0.25, most=8)], 8)


def test_the_counts_are_those_that_epochs_had(clock: list[float]) -> None:
    found = Tuning(first=2, limit=8)
    found.tensor_queue(waiting=6, running=2)
    told = []
    for _ in range(6):
        clock[0] += 1.0
        told.append(found.end_epoch())
    assert found.counts == [2, *told[:-1]]


def test_any_thread_may_call_at_any_time() -> None:
    found = Tuning(first=4, limit=16)
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            for step in range(500):
                found.graph_queue((number + step) % 3)
                found.tensor_queue(step % 20, number)
                if step % 10 == 0:
                    found.end_epoch()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(found.counts) == 4 * 50
    assert all(1 <= count <= 16 for count in found.counts)

"""The thread in which inboxes hear: what it does with calls, with errors, and with what nobody answers to."""

import threading

from siafu.serverless.inbox.inbox_loop import InboxLoop
from siafu.wire.inprocess import InProcessListener
from siafu.wire.messages import AskTask, Refused


def test_calls_are_made_in_order_in_one_thread() -> None:
    failures: list[BaseException] = []
    loop = InboxLoop(InProcessListener(), [], failures.append)
    seen: list[tuple[int, int | None]] = []
    done = threading.Event()
    loop.start()
    for number in range(3):
        loop.call(lambda number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]
    loop.call(done.set)
    assert done.wait(10)
    loop.stop()
    assert [number for number, _ in seen] == [0, 1, 2]
    assert len({thread for _, thread in seen} - {threading.get_ident()}) == 1
    assert failures == []


def test_an_error_that_is_ours_ends_the_loop_and_is_told() -> None:
    told = threading.Event()
    failures: list[BaseException] = []

    def on_failure(error: BaseException) -> None:
        failures.append(error)
        told.set()

    loop = InboxLoop(InProcessListener(), [], on_failure)
    loop.start()
    loop.call(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    assert told.wait(10)
    loop.stop()
    assert isinstance(failures[0], ZeroDivisionError)


def test_what_nobody_answers_to_is_refused() -> None:
    listener = InProcessListener()
    loop = InboxLoop(listener, [], lambda _: None)
    link = listener.connect()
    link.send(AskTask(1), 1)
    loop.turn(1)
    assert link.receive(1) == Refused("AskTask, which nobody here answers to")
    assert loop.refusals.counts == {"unexpected": 1}


def test_a_loop_that_never_ran_can_be_stopped() -> None:
    InboxLoop(InProcessListener(), [], lambda _: None).stop()

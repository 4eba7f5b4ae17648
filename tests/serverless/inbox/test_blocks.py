"""Rows that never change are sent once to a Lambda that keeps them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.serverless.control.events import TaskQueued
from siafu.serverless.control.ids import TaskId
from siafu.serverless.function.handler import handle
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.inbox.blocks import KeptBlocks
from siafu.serverless.inbox.task_inbox import TaskFinished
from siafu.serverless.inbox.task_step import TaskStep
from siafu.wire import messages as say
from tests.serverless.inbox.test_task_inbox import ALICE, Counter, peer_id
from tests.serverless.office import (
    ROWS,
    Clock,
    dropping_program,
    expected,
    in_process,
    payload,
    task_step,
)
from tests.serverless.small_controller import Small, offered

BLOCK_BYTES = ROWS * 16 * 8


def on_block(task: int, block: int) -> TaskStep:
    """Tasks of one block have the same rows."""
    made, rows = task_step(task), np.random.default_rng(100 + block).normal(size=(ROWS, 16))
    return replace(made, block=block, constants=("rows/0",), inputs={**made.inputs, "rows/0": rows})


def run(office_options: dict[str, int], tasks: list[TaskStep], places: int = 1) -> list[TaskFinished]:
    office, warm = in_process(**office_options)
    with office:
        office.tasks.extend(tasks)
        receipt = Receipt.of(handle(payload(office, places=places), Clock(), warm))
        assert receipt.ended == "dismissed"
        for task in tasks:
            for name, each in expected(task).items():
                np.testing.assert_allclose(office.results()[task.task][name], each, rtol=1e-11, atol=1e-12)
        return office.of(TaskFinished)


def test_a_lambda_keeps_what_never_changes() -> None:
    first, second = run({"keep_bytes": 1 << 30}, [on_block(0, 1), on_block(1, 1)])
    assert first.bytes_sent - second.bytes_sent == BLOCK_BYTES


def test_what_it_may_not_keep_is_sent_again() -> None:
    first, second = run({"keep_bytes": BLOCK_BYTES - 1}, [on_block(0, 1), on_block(1, 1)])
    assert first.bytes_sent == second.bytes_sent


def test_of_two_blocks_it_keeps_the_one_used_last() -> None:
    tasks = [on_block(k, block) for k, block in enumerate([1, 2, 2, 1])]
    sent = [each.bytes_sent for each in run({"keep_bytes": BLOCK_BYTES + 1}, tasks)]
    assert sent[0] == sent[1] == sent[3] == sent[2] + BLOCK_BYTES


@pytest.mark.parametrize("seed", range(8))
def test_what_goes_to_make_room_goes_after_the_tasks_that_need_it(seed: int) -> None:
    dice = np.random.default_rng(seed)
    blocks = dice.integers(1, 4, size=30)
    tasks = [on_block(task, int(block)) for task, block in enumerate(blocks)]
    done = run({"keep_bytes": 2 * BLOCK_BYTES}, tasks, places=3)
    assert len({each.bytes_sent for each in done}) == 2, "some rows were there, and some were not"


def test_what_tasks_in_hand_will_leave_takes_room() -> None:
    counter = Counter(keep_bytes=BLOCK_BYTES)
    counter.begin()
    counter.hear(say.AskTask(2), say.AskTask(2))
    for task, block in ((1, 1), (2, 2)):
        assert counter.inbox.offer(peer_id(ALICE), on_block(task, block))
    assert [each.keep for each in counter.of(say.TaskOffer)[1:]] == [("rows/0",), ()]


def test_where_all_is_kept_no_rows_come_at_all() -> None:
    given = [
        replace(
            task_step(0, program=dropping_program()),
            task=TaskId(task),
            block=1,
            constants=("rows/0", "vertices"),
        )
        for task in range(2)
    ]
    _, second = run({"keep_bytes": 1 << 30}, given)
    assert second.bytes_sent == given[0].inputs["key"].nbytes


def test_a_cancelled_task_leaves_nothing_that_the_server_does_not_know_of() -> None:
    counter = Counter(keep_bytes=1 << 30)
    counter.hear(say.Hello("a run", 1, 0, ()), say.AskTask(2))
    counter.inbox.offer(peer_id(ALICE), on_block(0, 5))
    counter.inbox.cancel(TaskId(0))
    assert counter.of(say.Forget) == [say.Forget(5)]


@pytest.mark.parametrize(("held", "keep"), [(("rows/0",), ()), ((), ("other",)), (("rows/0",), ("rows/0",))])
def test_an_offer_of_what_it_does_not_have_ends_the_session(
    held: tuple[str, ...], keep: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    office, warm = in_process()
    real = office.listener.send

    def lying(peer: object, message: say.Message) -> bool:
        if isinstance(message, say.TaskOffer):
            message = replace(message, held=held, keep=keep)
        return bool(real(peer, message))

    monkeypatch.setattr(office.inbox, "_send", lying)
    with office:
        office.tasks.append(task_step(0))
        assert Receipt.of(handle(payload(office), Clock(), warm)).ended == "refused"


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(1, 40)), max_size=30))
def test_never_more_is_kept_than_may_be(uses: list[tuple[bool, int, int]]) -> None:
    kept, sizes, stashes = KeptBlocks(100), dict[int, int](), dict[int, int]()
    for step, (is_stash, block, size) in enumerate(uses):
        if is_stash:
            if kept.bytes + size <= kept.most and block not in stashes:
                kept.add_stash(block, step, {"kept/0": size})
                stashes[block] = size
        elif (gone := kept.make_room(block, size)) is not None:
            for each in gone.stashes:
                del stashes[each]
            for each in gone.blocks:
                del sizes[each]
                stashes.pop(each, None)
            kept.add(block, {f"rows/{step}": size})
            sizes[block] = sizes.get(block, 0) + size
        assert kept.bytes == sum(sizes.values()) + sum(stashes.values()) <= 100


def queue(small: Small, task: int, home: int, priority: tuple[int, ...]) -> list[tuple[int, int]]:
    return offered(small.controller.handle(TaskQueued(small.now, TaskId(task), "T0", priority, home)))


def test_a_task_goes_to_the_lambda_that_has_its_rows() -> None:
    small = Small(count=2)
    queue(small, 0, 7, (0, 0))
    queue(small, 1, 8, (0, 1))
    assert offered(small.ask(0)) == [(0, 0)]
    assert offered(small.ask(1)) == [(1, 1)]
    for each in (0, 1):
        small.result(each, each)
        small.ask(each)
    assert queue(small, 2, 7, (1, 0)) == [(0, 2)]
    assert queue(small, 3, 8, (1, 1)) == [(1, 3)]


def test_a_task_waits_for_the_lambda_that_has_its_rows_although_another_idles() -> None:
    small = Small(count=2)
    queue(small, 0, 7, (0, 0))
    queue(small, 1, 8, (0, 1))
    small.ask(0)
    small.ask(1)
    small.result(1, 1)
    small.ask(1)
    assert queue(small, 2, 7, (1, 0)) == []
    small.result(0, 0)
    assert offered(small.ask(0)) == [(0, 2)]


def test_but_not_for_one_that_is_late() -> None:
    small = Small(count=2)
    queue(small, 0, 7, (0, 0))
    queue(small, 1, 8, (0, 1))
    small.ask(0)
    small.ask(1)
    small.result(1, 1)
    small.ask(1)
    assert queue(small, 2, 7, (1, 0)) == []
    assert offered(small.at(1.0)) == [(1, 0)]
    # It has the rows now.
    small.result(1, 0)
    assert offered(small.ask(1)) == [(1, 2)]


def test_who_has_less_to_do_is_given_some_of_it() -> None:
    small = Small(count=1)
    for task in range(4):
        queue(small, task, task, (0, task))
        small.ask(0)
        small.result(0, task)
    small.ask(0)
    small.change_count(2)
    for task in range(4):
        queue(small, 10 + task, task, (1, task))
    given = []
    for _ in range(3):
        given += (found := offered(small.ask(1)))
        for _, task in found:
            small.result(1, task)
    assert given == [(1, 11), (1, 12)], "then both have two"
    small.result(0, 10)
    assert offered(small.ask(0)) == [(0, 13)]


def test_a_lambda_gets_the_task_whose_rows_it_has() -> None:
    small = Small(count=2)
    queue(small, 0, 8, (0, 8))
    queue(small, 1, 9, (0, 9))
    small.ask(0)
    small.ask(1)
    queue(small, 2, 8, (1, 8))
    queue(small, 3, 9, (1, 9))
    small.result(1, 1)
    assert offered(small.ask(1)) == [(1, 3)]


def test_an_earlier_epoch_goes_first_of_those_whose_rows_it_has() -> None:
    small = Small(count=1)
    queue(small, 0, 9, (0, 9))
    small.ask(0)
    small.result(0, 0)
    queue(small, 2, 9, (2, 9))
    queue(small, 1, 7, (1, 7))
    assert offered(small.ask(0)) == [(0, 1)]

"""A backward task uses what its forward task left with the Lambda, where it did; what comes out is the same."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from siafu.program.trace.phase import PhasePrograms, RowSpec, trace_phase
from siafu.serverless.control.ids import TaskId
from siafu.serverless.function.handler import handle
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.inbox.blocks import KeptBlocks
from siafu.serverless.inbox.task_inbox import TaskFinished
from siafu.serverless.inbox.task_step import Shortcut, TaskStep
from siafu.wire import messages as say
from tests.serverless.inbox.test_task_inbox import ALICE, Counter, peer_id
from tests.serverless.office import ROWS, RUN, Clock, expected, in_process, payload

STASH_BYTES = ROWS * 5 * 8


@cache
def programs() -> PhasePrograms:
    """A phase whose backward pass needs the product of its forward pass."""

    def phase(
        rows: list[torch.Tensor], weights: dict[str, torch.Tensor], *_: torch.Tensor
    ) -> list[torch.Tensor]:
        return [torch.tanh(rows[0] @ weights["w"] + weights["b"]).square()]

    weights = {"w": torch.zeros(16, 5, dtype=torch.float64), "b": torch.zeros(5, dtype=torch.float64)}
    return trace_phase(phase, [RowSpec((16,))], weights, learnt=["w", "b"], differentiated=[0])


def forward(task: int, block: int = 1, tag: int = 7) -> TaskStep:
    made = programs()
    way = Shortcut(made.forward_keeping, ("kept/0",), tag)
    inputs = {"rows/0": np.random.default_rng(block).normal(size=(ROWS, 16))}
    return TaskStep(TaskId(task), made.forward, ROWS, "float64", 0, 1, inputs, block, ("rows/0",), leaves=way)


def backward(task: int, block: int = 1, tag: int = 7) -> TaskStep:
    made, before = programs(), forward(task, block)
    assert made.backward is not None and made.backward_kept is not None
    inputs = {**before.inputs, "gradient/0": np.random.default_rng(9).normal(size=(ROWS, 5))}
    way = Shortcut(made.backward_kept, ("kept/0",), tag)
    return replace(before, program=made.backward, inputs=inputs, leaves=None, finds=way)


def shortcuts(tasks: list[TaskStep], keep_bytes: int = 1 << 30, /, **told: Any) -> int:
    """Have tasks done, each as it should be; how many were done by a shortcut."""
    office, warm = in_process(keep_bytes=keep_bytes)
    with office:
        office.tasks.extend(tasks)
        for invocation in range(len(tasks) + 1):
            if len(office.of(TaskFinished)) < len(tasks):
                handle(payload(office, invocation, **told), Clock(), warm)
        for task in tasks:
            found = office.results()[task.task]
            assert found.keys() == set(task.program.output_names)
            for name, each in expected(task).items():
                np.testing.assert_allclose(found[name], each, rtol=1e-11, atol=1e-12)
    return office.inbox.shortcuts


def test_bytes_moved_are_those_of_a_lambda_that_has_what_it_may_keep() -> None:
    keeps, keeps_nothing = Counter(keep_bytes=1 << 30).inbox, Counter(keep_bytes=0).inbox
    gradients, features, sums = ROWS * 5 * 8, ROWS * 16 * 8, 17 * 5 * 8
    assert keeps.bytes_moved(forward(0)) == gradients
    assert keeps_nothing.bytes_moved(forward(0)) == features
    assert keeps_nothing.bytes_moved(backward(1)) == features + gradients
    # More comes back than goes out: the gradients of the features, and those of the weights.
    assert keeps.bytes_moved(backward(1)) == features + sums


@pytest.mark.parametrize("streaming", [True, False])
def test_what_a_forward_task_left_is_found(streaming: bool) -> None:
    assert shortcuts([forward(0), backward(1)], streaming=streaming) == 1


def test_rows_in_parts_are_left_whole() -> None:
    counter = Counter(keep_bytes=1 << 30)
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(2))
    counter.inbox.offer(peer_id(ALICE), forward(0))
    (offer,) = counter.of(say.TaskOffer)
    assert offer.parts > 1
    assert (offer.leave, offer.unsent) == (("kept/0",), ("kept/0",))


@pytest.mark.parametrize("between", [lambda: forward(1, tag=8), lambda: backward(1)])
def test_what_was_followed_by_another_or_used_is_not_there(between: Callable[[], TaskStep]) -> None:
    middle = between()
    assert shortcuts([forward(0), middle, backward(2)]) == int(middle.finds is not None)


@pytest.mark.parametrize("other", [{"tag": 8}, {"block": 2}])
def test_what_was_left_by_another_pass_or_of_other_rows_is_not_used(other: dict[str, int]) -> None:
    assert shortcuts([forward(0), backward(1, **other)]) == 0


def test_many_blocks_have_a_stash_each() -> None:
    ahead = [forward(block, block) for block in range(4)]
    assert shortcuts([*ahead, *(backward(4 + block, block) for block in range(4))]) == 4


def test_nothing_outlives_an_invocation() -> None:
    assert shortcuts([forward(0), backward(1)], tasks=1) == 0


def test_where_there_is_no_room_nothing_is_left() -> None:
    constants = ROWS * 16 * 8
    assert shortcuts([forward(0), backward(1)], constants + STASH_BYTES - 1) == 0
    assert shortcuts([forward(0), backward(1)], constants + STASH_BYTES) == 1


def test_constants_take_the_room_of_stashes_and_stashes_never_that_of_constants() -> None:
    kept = KeptBlocks(100)
    kept.add(1, {"rows/0": 40})
    kept.add_stash(1, 7, {"kept/0": 20})
    gone = kept.make_room(2, 50)
    assert gone is not None
    assert (gone.stashes, gone.blocks) == ([1], [])
    assert kept.names(1) == {"rows/0"}


def test_what_a_cancelled_task_may_have_left_is_not_used() -> None:
    counter = Counter(keep_bytes=1 << 30)
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(2))
    counter.inbox.offer(peer_id(ALICE), forward(0))
    counter.inbox.cancel(TaskId(0))
    assert counter.of(say.Forget) == [say.Forget(1)]
    counter.hear(say.TaskReturn(counter.of(say.TaskOffer)[0].lease, "cancelled"), say.AskTask(2))
    counter.inbox.offer(peer_id(ALICE), backward(1))
    assert counter.of(say.TaskOffer)[-1].program == backward(1).program.hash


@pytest.mark.parametrize(
    "lie",
    [
        {"leave": ("rows/0",)},
        {"leave": (), "unsent": ("kept/0",)},
        {"leave": ("kept/0", "kept/1")},
        {"held": ("kept/0",)},
    ],
)
def test_an_offer_to_leave_what_cannot_be_ends_the_session(
    lie: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session_with_lies(monkeypatch, [forward(0)], lie) == "refused"


def test_an_offer_of_a_stash_of_another_pass_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    assert session_with_lies(monkeypatch, [forward(0), backward(1)], {}) == "dismissed"
    assert session_with_lies(monkeypatch, [forward(0), backward(1)], {"tag": 8}, first=1) == "refused"


def session_with_lies(
    monkeypatch: pytest.MonkeyPatch, tasks: list[TaskStep], lie: dict[str, Any], first: int = 0
) -> str:
    """How a session ends whose offers, from one on, are not what the inbox said."""
    office, warm = in_process(keep_bytes=1 << 30)
    real, offers = office.listener.send, []

    def lying(peer: Any, message: say.Message) -> bool:
        if isinstance(message, say.TaskOffer):
            offers.append(message)
            message = replace(message, **lie) if len(offers) > first else message
        return bool(real(peer, message))

    monkeypatch.setattr(office.inbox, "_send", lying)
    with office:
        office.tasks.extend(tasks)
        return Receipt.of(handle(payload(office), Clock(), warm)).ended

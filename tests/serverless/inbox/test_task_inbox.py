"""The server's side of the talk, message by message, without a socket."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.serverless.control.ids import InvocationId, PeerId, TaskId
from siafu.serverless.inbox.task_inbox import (
    InboxEvent,
    LambdaAsked,
    TaskFinished,
    TaskFinishedLate,
    TaskGivenBack,
    TaskInbox,
)
from siafu.serverless.inbox.weight_inbox import WeightInbox
from siafu.wire import messages as say
from siafu.wire.link import Peer
from siafu.wire.refusal import Refusal
from tests.serverless.office import RUN, WEIGHTS, expected, task_step

ALICE, BOB = Peer(b"a", "key a"), Peer(b"b", "key b")
ONE = InvocationId(1)


class Counter:
    """An inbox, what it sent and what it told."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[tuple[Peer, say.Message]] = []
        self.told: list[InboxEvent] = []
        self.reachable = True
        self.inbox = TaskInbox(RUN, self._send, self.told.append, **{"part_bytes": 1 << 16, **options})
        self.inbox.expect(ONE, ALICE.key)

    def _send(self, peer: Peer, message: say.Message) -> bool:
        self.sent.append((peer, message))
        return self.reachable

    def hear(self, *messages: say.Message, peer: Peer = ALICE) -> None:
        for message in messages:
            self.inbox.receive(peer, message)

    def of(self, kind: type) -> list[Any]:
        return [message for _, message in self.sent if isinstance(message, kind)]

    def begin(self, credit: int = 2, peer: Peer = ALICE, invocation: int = 1, **task: Any) -> say.TaskOffer:
        """A Lambda comes, asks, and gets a task."""
        self.hear(say.Hello(RUN, invocation, 0, ()), say.AskTask(credit), peer=peer)
        assert self.inbox.offer(peer_id(peer), task_step(**task))
        offer: say.TaskOffer = self.of(say.TaskOffer)[-1]
        return offer

    def finish(self, offer: say.TaskOffer, parts: range, peer: Peer = ALICE) -> None:
        """What an honest Lambda answers, of these parts and, with the last, the result."""
        outputs = expected(task_step())
        for part in parts:
            first, last = say.part_bounds(offer.rows, offer.parts, part)
            rows = {"grad/rows/0": outputs["grad/rows/0"][first:last]}
            self.hear(say.TaskOutputPart(offer.lease, part, rows), peer=peer)
        if parts.stop == offer.parts:
            sums = {name: each for name, each in outputs.items() if name != "grad/rows/0"}
            self.hear(say.TaskEnd(offer.lease, 5, 6, sums), peer=peer)


def peer_id(peer: Peer) -> PeerId:
    return PeerId(peer.address.hex())


def test_who_is_expected_is_welcome_and_may_ask() -> None:
    counter = Counter()
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(2))
    assert counter.sent == [(ALICE, say.Welcome(1))]
    assert counter.told == [LambdaAsked(ONE, peer_id(ALICE))]


@pytest.mark.parametrize(
    ("peer", "hello"),
    [
        (ALICE, say.Hello("another run", 1, 0, ())),
        (ALICE, say.Hello(RUN, 2, 0, ())),
        (BOB, say.Hello(RUN, 1, 0, ())),
    ],
)
def test_who_is_not_expected_is_refused(peer: Peer, hello: say.Hello) -> None:
    with pytest.raises(Refusal, match="nobody expects"):
        Counter().hear(hello, peer=peer)


def test_an_invocation_that_is_over_is_refused() -> None:
    counter = Counter()
    counter.begin()
    counter.inbox.forget(ONE)
    with pytest.raises(Refusal, match="not expected"):
        counter.hear(say.Credit(1, 1))
    with pytest.raises(Refusal, match="nobody expects"):
        counter.hear(say.Hello(RUN, 1, 0, ()))


def test_nobody_can_speak_before_hello() -> None:
    with pytest.raises(Refusal, match="AskTask from a Lambda that is not expected"):
        Counter().hear(say.AskTask(1))


def test_a_program_is_sent_once_and_before_its_first_offer() -> None:
    counter = Counter()
    offer = counter.begin()
    counter.finish(offer, range(offer.parts))
    counter.hear(say.AskTask(2))
    counter.inbox.offer(peer_id(ALICE), task_step(1))
    kinds = [type(message) for _, message in counter.sent]
    assert kinds.count(say.ProgramText) == 1
    assert kinds.index(say.ProgramText) < kinds.index(say.TaskOffer)


def test_a_program_that_the_lambda_still_has_is_not_sent() -> None:
    counter = Counter()
    counter.hear(say.Hello(RUN, 1, 0, (task_step().program.hash,)), say.AskTask(2))
    counter.inbox.offer(peer_id(ALICE), task_step())
    assert counter.of(say.ProgramText) == []


def test_no_more_parts_are_sent_than_there_is_credit_for() -> None:
    counter = Counter()
    offer = counter.begin(credit=2)
    assert offer.parts > 3
    assert [each.part for each in counter.of(say.TaskInputPart)] == [0, 1]
    counter.hear(say.Credit(offer.lease, 1))
    assert [each.part for each in counter.of(say.TaskInputPart)] == [0, 1, 2]
    counter.hear(say.Credit(offer.lease, 60))
    assert [each.part for each in counter.of(say.TaskInputPart)] == list(range(offer.parts))


def test_parts_are_views_of_the_task_s_rows() -> None:
    counter = Counter()
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(2))
    task = task_step()
    counter.inbox.offer(peer_id(ALICE), task)
    part = counter.of(say.TaskInputPart)[0]
    assert np.shares_memory(part.tensors["rows/0"], task.inputs["rows/0"])


def test_a_result_is_told_once_and_whole() -> None:
    counter = Counter()
    offer = counter.begin(credit=8)
    counter.finish(offer, range(offer.parts))
    (done,) = [each for each in counter.told if isinstance(each, TaskFinished)]
    assert (done.invocation, done.peer, done.task, done.compute_us, done.wait_us) == (
        ONE,
        peer_id(ALICE),
        0,
        5,
        6,
    )
    for name, each in expected(task_step()).items():
        np.testing.assert_array_equal(done.outputs[name], each)
        assert done.outputs[name].flags.writeable


def test_a_replayed_result_is_refused() -> None:
    counter = Counter()
    offer = counter.begin(credit=8)
    counter.finish(offer, range(offer.parts))
    with pytest.raises(Refusal, match="does not hold"):
        counter.finish(offer, range(offer.parts))
    assert sum(isinstance(each, TaskFinished) for each in counter.told) == 1


def test_another_lambda_s_lease_cannot_be_answered() -> None:
    counter = Counter()
    counter.inbox.expect(InvocationId(2), BOB.key)
    offer = counter.begin(credit=8)
    counter.begin(credit=8, peer=BOB, invocation=2, task=1)
    with pytest.raises(Refusal, match="does not hold"):
        counter.finish(offer, range(offer.parts), peer=BOB)
    counter.finish(offer, range(offer.parts))
    assert [each.peer for each in counter.told if isinstance(each, TaskFinished)] == [peer_id(ALICE)]


def _not_its_turn(offer: say.TaskOffer) -> say.Message:
    return say.TaskOutputPart(offer.lease, 1, {"grad/rows/0": np.zeros((1, 16))})


def _wrong_shape(offer: say.TaskOffer) -> say.Message:
    return say.TaskOutputPart(offer.lease, 0, {"grad/rows/0": np.zeros((1, 16))})


def _wrong_type(offer: say.TaskOffer) -> say.Message:
    first, last = say.part_bounds(offer.rows, offer.parts, 0)
    return say.TaskOutputPart(offer.lease, 0, {"grad/rows/0": np.zeros((last - first, 16), np.float32)})


def _wrong_name(offer: say.TaskOffer) -> say.Message:
    return say.TaskOutputPart(offer.lease, 0, {"grad/rows/9": np.zeros((1, 16))})


def _too_early(offer: say.TaskOffer) -> say.Message:
    return say.TaskEnd(offer.lease, 0, 0, {})


def _too_much_credit(offer: say.TaskOffer) -> say.Message:
    return say.Credit(offer.lease, say.MOST_CREDIT + 1)


def _not_for_servers(offer: say.TaskOffer) -> say.Message:
    return say.TaskOutputPart(10**9, 0, {})


@pytest.mark.parametrize(
    "lie",
    [
        _not_its_turn,
        _wrong_shape,
        _wrong_type,
        _wrong_name,
        _too_early,
        _too_much_credit,
        _not_for_servers,
    ],
)
def test_what_cannot_be_ends_the_session_and_the_task_is_given_back(lie: Any) -> None:
    counter = Counter()
    offer = counter.begin()
    with pytest.raises(Refusal):
        counter.hear(lie(offer))
    assert [type(each) for each in counter.told] == [LambdaAsked, TaskGivenBack]
    with pytest.raises(Refusal, match="not expected"):
        counter.hear(say.Credit(offer.lease, 1))


def test_who_asks_for_more_while_at_a_task_gets_the_next_one_s_rows_at_once() -> None:
    counter = Counter()
    first = counter.begin()
    counter.hear(say.AskTask(2))
    assert counter.inbox.offer(peer_id(ALICE), task_step(1))
    second = counter.of(say.TaskOffer)[-1]
    assert [each.lease for each in counter.of(say.TaskInputPart)] == [first.lease] * 2 + [second.lease] * 2
    counter.finish(first, range(first.parts))
    assert [each.task for each in counter.told if isinstance(each, TaskFinished)] == [0]


def test_nobody_asks_for_tasks_without_end() -> None:
    counter = Counter()
    counter.begin()
    for _ in range(say.MOST_PLACES - 1):
        counter.hear(say.AskTask(1))
    with pytest.raises(Refusal, match="at once"):
        counter.hear(say.AskTask(1))
    assert [type(each) for each in counter.told] == [LambdaAsked] * say.MOST_PLACES + [TaskGivenBack]


@pytest.mark.parametrize("credit", [0, say.MOST_CREDIT + 1])
def test_an_ask_with_credit_that_cannot_be_is_refused(credit: int) -> None:
    counter = Counter()
    counter.hear(say.Hello(RUN, 1, 0, ()))
    with pytest.raises(Refusal):
        counter.hear(say.AskTask(credit))


def test_results_that_lack_a_gradient_are_refused() -> None:
    counter = Counter()
    offer = counter.begin()
    outputs = expected(task_step())
    for part in range(offer.parts):
        first, last = say.part_bounds(offer.rows, offer.parts, part)
        counter.hear(
            say.TaskOutputPart(offer.lease, part, {"grad/rows/0": outputs["grad/rows/0"][first:last]})
        )
    with pytest.raises(Refusal, match="where grad/weight/b, grad/weight/w, loss should be"):
        counter.hear(say.TaskEnd(offer.lease, 0, 0, {"loss": outputs["loss"]}))


def test_a_cancelled_task_s_result_is_late() -> None:
    counter = Counter()
    offer = counter.begin(credit=8)
    counter.finish(offer, range(2))
    counter.inbox.cancel(TaskId(0))
    assert counter.of(say.TaskCancel) == [say.TaskCancel(offer.lease)]
    counter.finish(offer, range(2, offer.parts))
    assert counter.told[-1] == TaskFinishedLate(ONE, peer_id(ALICE), TaskId(0))
    counter.hear(say.AskTask(1))  # and it goes on


def test_a_cancelled_task_that_is_given_back_is_nobody_s_business() -> None:
    counter = Counter()
    offer = counter.begin()
    counter.inbox.cancel(TaskId(0))
    counter.hear(say.Credit(offer.lease, 1), say.TaskReturn(offer.lease, "cancelled"), say.AskTask(1))
    assert [type(each) for each in counter.told] == [LambdaAsked, LambdaAsked]


def test_what_a_lambda_gives_back_is_told_with_its_reason() -> None:
    counter = Counter()
    offer = counter.begin()
    counter.hear(say.TaskReturn(offer.lease, "no time left"))
    assert counter.told[-1] == TaskGivenBack(ONE, peer_id(ALICE), TaskId(0), "no time left")


def test_what_a_lambda_holds_when_it_leaves_is_given_back() -> None:
    counter = Counter()
    counter.begin()
    counter.hear(say.Leave(1))
    assert counter.told[-1] == TaskGivenBack(ONE, peer_id(ALICE), TaskId(0), "its Lambda left")
    assert counter.sent[-1] == (ALICE, say.Left(1))


def test_a_peer_that_says_hello_again_begins_anew() -> None:
    counter = Counter()
    counter.begin()
    counter.begin(task=1)
    assert [type(each) for each in counter.told] == [LambdaAsked, TaskGivenBack, LambdaAsked]


def test_an_invocation_that_runs_twice_is_two_peers_but_not_any_number() -> None:
    counter = Counter()
    peers = [Peer(bytes([k]), ALICE.key) for k in range(6)]
    for k, peer in enumerate(peers):
        counter.begin(peer=peer, task=k)
    lost = [each.peer for each in counter.told if isinstance(each, TaskGivenBack)]
    assert lost == [peer_id(each) for each in peers[:2]]


def test_nothing_is_offered_to_who_is_gone_or_has_not_asked() -> None:
    counter = Counter()
    assert not counter.inbox.offer(peer_id(ALICE), task_step())
    counter.hear(say.Hello(RUN, 1, 0, ()))
    assert not counter.inbox.offer(peer_id(ALICE), task_step())
    counter.hear(say.AskTask(1))
    counter.reachable = False
    assert not counter.inbox.offer(peer_id(ALICE), task_step())
    assert [type(each) for each in counter.told] == [LambdaAsked]


def test_a_peer_that_does_not_take_its_parts_loses_the_task() -> None:
    counter = Counter()
    offer = counter.begin(credit=1)
    counter.reachable = False
    counter.hear(say.Credit(offer.lease, 1))
    assert isinstance(counter.told[-1], TaskGivenBack)


def test_who_is_dismissed_is_told() -> None:
    counter = Counter()
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(1))
    counter.inbox.dismiss(peer_id(ALICE))
    counter.inbox.dismiss(peer_id(BOB))
    assert counter.sent[-1] == (ALICE, say.Dismiss(1))


def test_a_task_without_rows_comes_in_one_empty_part() -> None:
    counter = Counter()
    offer = counter.begin(rows=0)
    assert (offer.rows, offer.parts) == (0, 1)
    assert counter.of(say.TaskInputPart)[0].tensors["rows/0"].shape == (0, 16)


def test_a_task_with_inputs_that_do_not_fit_is_our_own_mistake() -> None:
    counter = Counter()
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(1))
    with pytest.raises(BadInput, match="a tensor task was given"):
        counter.inbox.offer(peer_id(ALICE), replace(task_step(), rows=5))


def test_a_task_that_cannot_travel_is_refused_before_it_does() -> None:
    counter = Counter(largest_frame=600)
    counter.hear(say.Hello(RUN, 1, 0, ()), say.AskTask(1))
    with pytest.raises(BadInput, match="bytes in one piece"):
        counter.inbox.offer(peer_id(ALICE), task_step())


def test_weights_are_given_by_version_and_name() -> None:
    sent: list[say.Message] = []
    inbox = WeightInbox(lambda _, message: bool(sent.append(message)), {4: WEIGHTS}.get)
    inbox.receive(ALICE, say.AskWeights(4, ("w",)))
    inbox.receive(ALICE, say.AskWeights(5, ("w",)))
    first, second = sent
    assert isinstance(first, say.WeightsReply)
    assert list(first.tensors) == ["w"]
    assert second == say.WeightsMissing(5, "version 5 is not held here")
    with pytest.raises(Refusal, match="'q', which does not exist"):
        inbox.receive(ALICE, say.AskWeights(4, ("q",)))
    with pytest.raises(Refusal, match="AskTask at a weight server"):
        inbox.receive(ALICE, say.AskTask(1))

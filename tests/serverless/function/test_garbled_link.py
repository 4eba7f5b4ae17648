"""Lambdas whose answers are garbled: whatever leaves in their place is refused, and another does the task."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from siafu.base.errors import BadInput
from siafu.serverless.control.ids import InvocationId, PeerId
from siafu.serverless.function.faults import FaultPlan
from siafu.serverless.function.garbled_link import FAULTS_VARIABLE, GARBLERS, Answer, GarbledLink, plan_in
from siafu.serverless.function.handler import handle
from siafu.serverless.function.payload import Endpoint
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.function.warm import Warm
from siafu.serverless.inbox.task_inbox import InboxEvent, TaskFinished, TaskInbox
from siafu.wire import messages as say
from siafu.wire.codec import decode
from siafu.wire.keys import Keys
from siafu.wire.link import Link, Peer
from siafu.wire.refusal import Refusal
from tests.serverless.office import RUN, Clock, Office, expected, over_zeromq, payload, task_step

LAMBDA = Peer(b"a", "its key")


def inbox_with_a_task(told: list[InboxEvent]) -> tuple[TaskInbox, list[Answer]]:
    """An inbox that gave a task to a Lambda, and what that one would rightly answer."""
    sent: list[say.Message] = []

    def send(_: Peer, message: say.Message) -> bool:
        sent.append(message)
        return True

    inbox = TaskInbox(RUN, send, told.append, part_bytes=1 << 17)
    inbox.expect(InvocationId(1), LAMBDA.key)
    inbox.receive(LAMBDA, say.Hello(RUN, 1, 0, ()))
    inbox.receive(LAMBDA, say.AskTask(8))
    assert inbox.offer(PeerId(LAMBDA.address.hex()), task_step())
    offer = next(each for each in sent if isinstance(each, say.TaskOffer))
    outputs = expected(task_step())
    rows = outputs.pop("grad/rows/0")
    answers: list[Answer] = []
    for part in range(offer.parts):
        first, last = say.part_bounds(offer.rows, offer.parts, part)
        answers.append(say.TaskOutputPart(offer.lease, part, {"grad/rows/0": rows[first:last]}))
    return inbox, [*answers, say.TaskEnd(offer.lease, 1, 1, outputs)]


def test_what_is_not_garbled_is_taken() -> None:
    told: list[InboxEvent] = []
    inbox, answers = inbox_with_a_task(told)
    for each in answers:
        inbox.receive(LAMBDA, each)
    assert isinstance(told[-1], TaskFinished)


@pytest.mark.parametrize("which", ["first part", "last part", "result"])
@pytest.mark.parametrize("garbler", GARBLERS)
def test_every_garbled_answer_is_refused(garbler: str, which: str) -> None:
    told: list[InboxEvent] = []
    inbox, answers = inbox_with_a_task(told)
    assert len(answers) > 2
    at = {"first part": 0, "last part": len(answers) - 2, "result": len(answers) - 1}[which]
    garbled = GARBLERS[garbler](answers[at], random.Random(f"{garbler} {which}"))
    if garbled is None:
        assert (garbler, which) == ("another part", "result")
        return
    for each in answers[:at]:
        inbox.receive(LAMBDA, each)
    with pytest.raises(Refusal):
        for frames in garbled:
            inbox.receive(LAMBDA, decode([bytes(each) for each in frames]))
    came_whole = garbler == "the same again" and which == "result"
    assert any(isinstance(each, TaskFinished) for each in told) == came_whole


def garbled_warm(plan: FaultPlan) -> Iterator[Warm]:
    context = zmq.Context()

    def connect(endpoint: Endpoint, keys: Keys) -> Link:
        return GarbledLink(plan, context, endpoint.address, endpoint.key, keys)

    warm = Warm(connect)
    yield warm
    warm.close()
    context.term()


PLAN = FaultPlan(4, garble=0.5)
STRUCK = [number for number in range(60) if PLAN.fault(number)]
SPARED = [number for number in range(60) if not PLAN.fault(number)]


@pytest.fixture
def warm() -> Iterator[Warm]:
    """A Lambda's process whose connections are garbled as `PLAN` says."""
    yield from garbled_warm(PLAN)


def work(office: Office, warm: Warm, invocation: int, **told: Any) -> Receipt:
    return Receipt.of(handle(payload(office, invocation, **told), Clock(), warm))


def test_a_struck_invocation_is_refused_and_the_next_does_its_task(warm: Warm) -> None:
    with over_zeromq() as office:
        for task, (struck, spared) in enumerate(zip(STRUCK[:20], SPARED[:20], strict=True)):
            office.tasks.append(task_step(task))
            assert work(office, warm, struck).ended == "refused"
            if task not in office.results():
                office.tasks.append(task_step(task))
            assert work(office, warm, spared).ended == "dismissed"
            for name, value in expected(task_step(task)).items():
                np.testing.assert_allclose(office.results()[task][name], value, rtol=1e-11, atol=1e-12)
        refused = office.listener.refusals.counts + office.loop.refusals.counts
    # Everything that can be wrong with an answer was: with its frames, its header, its tensors and its lease.
    assert {"frames", "header", "tensor", "unexpected"} <= set(refused)


def test_one_that_is_refused_when_it_is_about_to_leave_does_not_wait_to_be_let_go(warm: Warm) -> None:
    with over_zeromq() as office:
        office.tasks.extend(task_step(task) for task in range(8))
        ended = {work(office, warm, struck, tasks=1).ended for struck in STRUCK[:8]}
    assert ended == {"refused"}


def test_an_invocation_that_is_not_struck_says_what_it_means(warm: Warm) -> None:
    with over_zeromq() as office:
        for task, spared in enumerate(SPARED[:5]):
            office.tasks.append(task_step(task))
            assert work(office, warm, spared).ended == "dismissed"
        assert office.listener.refusals.total() + office.loop.refusals.total() == 0


def test_a_plan_reaches_a_lambda_through_its_environment() -> None:
    plan = FaultPlan(9, kill=0.1, garble=0.3, window=0.5)
    assert plan_in({FAULTS_VARIABLE: plan.text()}) == plan
    assert plan_in({}) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"seed": 1, "moonshine": 2}', '{"seed": 1, "kill": 7}'])
def test_a_plan_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        plan_in({FAULTS_VARIABLE: text})

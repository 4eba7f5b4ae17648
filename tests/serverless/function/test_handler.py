"""What a Lambda does in an invocation, against a server in the same process or behind a socket."""

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.serverless.control.ids import TaskId
from siafu.serverless.function import lambda_session
from siafu.serverless.function.handler import handle
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.function.warm import Warm, over_tcp
from siafu.serverless.inbox.task_inbox import (
    InboxEvent,
    LambdaAsked,
    TaskFinished,
    TaskFinishedLate,
    TaskGivenBack,
)
from siafu.wire import messages as say
from siafu.wire.keys import make_keys
from tests.serverless.office import (
    WEIGHTS,
    Clock,
    Office,
    dropping_program,
    expected,
    in_process,
    over_zeromq,
    payload,
    task_step,
)


def check(office: Office, *tasks: int, **made: Any) -> None:
    """Each task has its result, the one that all rows at once would have."""
    results = office.results()
    assert sorted(results) == sorted(tasks)
    for task in tasks:
        for name, each in expected(task_step(task, **made)).items():
            np.testing.assert_allclose(results[task][name], each, rtol=1e-11, atol=1e-12)


def invoke(
    office: Office, warm: Warm, invocation: int = 0, clock: Clock | None = None, **told: Any
) -> Receipt:
    return Receipt.of(handle(payload(office, invocation, **told), clock or Clock(), warm))


def test_tasks_are_done_until_the_lambda_is_sent_home() -> None:
    office, warm = in_process()
    with office:
        office.tasks.extend(task_step(task) for task in range(3))
        receipt = invoke(office, warm)
        check(office, 0, 1, 2)
    assert (receipt.ended, receipt.tasks, receipt.rows, receipt.cold) == ("dismissed", 3, 9000, 1)
    assert (receipt.programs, receipt.weights) == (1, 2)
    assert receipt.bytes_in > 3 * 3000 * 16 * 8
    assert receipt.bytes_out > 3 * 3000 * 16 * 8


def test_the_same_over_zeromq_with_keys() -> None:
    warm = Warm(over_tcp())
    with over_zeromq() as office:
        office.tasks.extend(task_step(task) for task in range(3))
        receipt = invoke(office, warm)
        check(office, 0, 1, 2)
        assert office.listener.refusals.total() == 0
        warm.close()
    # The listener has counted what it heard last when it is closed.
    assert receipt.bytes_in == office.listener.traffic.bytes_out
    assert receipt.bytes_out == office.listener.traffic.bytes_in
    assert (receipt.ended, receipt.tasks) == ("dismissed", 3)


@pytest.mark.parametrize("rows", [0, 1, 255, 100_000])
def test_any_number_of_rows_will_do(rows: int) -> None:
    office, warm = in_process()
    with office:
        office.tasks.append(task_step(rows=rows))
        invoke(office, warm)
        check(office, 0, rows=rows)


def test_dropout_is_drawn_by_vertex_wherever_the_rows_are_cut() -> None:
    office, warm = in_process()
    program = dropping_program()
    assert {"key", "vertices"} <= set(program.input_names)
    with office:
        office.tasks.append(task_step(program=program))
        invoke(office, warm)
        check(office, 0, program=program)


@pytest.mark.parametrize("streaming", [True, False])
def test_results_do_not_depend_on_streaming(streaming: bool) -> None:
    office, warm = in_process()
    with office:
        office.tasks.append(task_step(rows=50_000))
        invoke(office, warm, streaming=streaming)
        got = office.results()[0]
    again, cold = in_process()
    with again:
        again.tasks.append(task_step(rows=50_000))
        invoke(again, cold)
        for name, each in again.results()[0].items():
            np.testing.assert_array_equal(got[name], each)


def test_the_first_rows_come_back_before_the_last_have_gone() -> None:
    seen: list[type] = []
    office, warm = in_process()
    told = office.listener.receive

    def listen(seconds: float) -> Any:
        heard = told(seconds)
        if heard is not None:
            seen.append(type(heard[1]))
        return heard

    office.listener.receive = listen
    with office:
        office.tasks.append(task_step(rows=100_000))
        invoke(office, warm)
        check(office, 0, rows=100_000)
    last_credit = len(seen) - seen[::-1].index(say.Credit)
    assert seen.index(say.TaskOutputPart) < last_credit


def test_a_warm_lambda_has_its_programs_weights_and_connections_still() -> None:
    office, warm = in_process()
    with office:
        office.tasks.append(task_step(0))
        invoke(office, warm)
        office.tasks.append(task_step(1))
        receipt = invoke(office, warm, 1)
        check(office, 0, 1)
        assert len({event.peer for event in office.of(LambdaAsked)}) == 1
    assert (receipt.cold, receipt.programs, receipt.weights) == (0, 0, 0)


def test_another_key_means_another_connection() -> None:
    office, warm = in_process()
    with office:
        invoke(office, warm)
        other = make_keys()
        office.loop.call(lambda: office.inbox.expect(1, other.public))  # type: ignore[arg-type]
        told = payload(office) | {"keys": {"public": other.public, "secret": other.secret}, "invocation": 1}
        assert Receipt.of(handle(told, Clock(), warm)).ended == "dismissed"
        assert len({event.peer for event in office.of(LambdaAsked)}) == 2


def test_only_weights_that_are_missing_are_fetched() -> None:
    office, warm = in_process()
    with office:
        office.tasks.extend([task_step(0, program=dropping_program()), task_step(1)])
        receipt = invoke(office, warm)
    assert receipt.weights == 2  # w, then b


def test_what_earlier_tasks_read_of_one_version_is_fetched_at_once_of_the_next() -> None:
    office, warm = in_process(versions={1: WEIGHTS, 2: WEIGHTS})
    dropping = dropping_program()
    with office:
        office.tasks.extend(
            [task_step(0), task_step(1, program=dropping, version=2), task_step(2, version=2)]
        )
        receipt = invoke(office, warm)
        assert office.weights.answered == 2
    assert receipt.weights == 4


def test_a_lambda_that_gets_nothing_to_do_leaves() -> None:
    office, warm = in_process(dismissing=False)
    with office:
        receipt = invoke(office, warm, idle_ms=10)
    assert (receipt.ended, receipt.tasks) == ("idle", 0)


def test_a_lambda_leaves_after_as_many_tasks_as_it_may_do() -> None:
    office, warm = in_process()
    with office:
        office.tasks.extend(task_step(task) for task in range(3))
        receipt = invoke(office, warm, tasks=2)
        check(office, 0, 1)
    assert (receipt.ended, receipt.tasks) == ("enough", 2)


def test_a_lambda_near_its_deadline_takes_no_further_task() -> None:
    clock = Clock()

    def on_event(event: InboxEvent) -> None:
        clock.milliseconds = 1500

    office, warm = in_process(on_event=on_event)
    with office:
        office.tasks.extend(task_step(task) for task in range(3))
        receipt = invoke(office, warm, clock=clock)
        check(office, 0)
    assert (receipt.ended, receipt.tasks) == ("deadline", 1)


def test_a_lambda_whose_time_runs_out_gives_its_task_back() -> None:
    office, warm = in_process(on_event=lambda event: setattr(clock, "milliseconds", 500))
    clock = Clock()
    with office:
        office.tasks.append(task_step())
        receipt = invoke(office, warm, clock=clock)
        given = office.of(TaskGivenBack)
    assert (receipt.ended, receipt.tasks) == ("deadline", 0)
    assert len(given) == 1


def test_a_cancelled_task_is_dropped_and_the_next_is_asked_for() -> None:
    office, warm = in_process()
    offer = office.inbox.offer

    def offer_and_cancel(peer: Any, task: Any) -> bool:
        there = offer(peer, task)
        if task.task == 0:
            office.inbox.cancel(TaskId(0))
        return there

    office.inbox.offer = offer_and_cancel  # type: ignore[method-assign]
    with office:
        office.tasks.extend([task_step(0, rows=200_000), task_step(1)])
        receipt = invoke(office, warm)
        check(office, 1)
        assert office.of(TaskGivenBack) == []
        assert office.of(TaskFinishedLate) == []
    assert (receipt.tasks, receipt.given_back) == (1, 1)


@pytest.mark.parametrize("places", [2, 3, 8])
def test_tasks_in_hand_are_done_in_their_order(places: int) -> None:
    office, warm = in_process()
    with office:
        office.tasks.extend(task_step(task) for task in range(7))
        receipt = invoke(office, warm, places=places)
        check(office, *range(7))
        assert [each.task for each in office.of(TaskFinished)] == list(range(7))
        # The last tasks were offered before the one before them was done.
        kinds = [type(each) for each in office.events]
        assert kinds[:places] == [LambdaAsked] * places
    assert (receipt.ended, receipt.tasks, receipt.given_back) == ("dismissed", 7, 0)


def test_a_task_in_hand_that_is_cancelled_before_its_turn_is_put_down() -> None:
    office, warm = in_process()
    offer = office.inbox.offer

    def offer_and_cancel(peer: Any, task: Any) -> bool:
        there = offer(peer, task)
        if task.task == 1:
            office.inbox.cancel(TaskId(1))
        return there

    office.inbox.offer = offer_and_cancel  # type: ignore[method-assign]
    with office:
        office.tasks.extend([task_step(0, rows=200_000), task_step(1), task_step(2)])
        receipt = invoke(office, warm, places=2)
        assert sorted(office.results()) == [0, 2]
        assert office.of(TaskGivenBack) == office.of(TaskFinishedLate) == []
    assert (receipt.tasks, receipt.given_back) == (2, 1)


def test_what_a_lambda_has_in_hand_when_its_time_runs_out_is_given_back() -> None:
    clock = Clock()

    def stop(event: InboxEvent) -> None:
        if isinstance(event, TaskFinished):
            clock.milliseconds = 1500

    office, warm = in_process(on_event=stop)
    with office:
        office.tasks.extend(task_step(task) for task in range(5))
        receipt = invoke(office, warm, clock=clock, places=3)
        done, given = (
            {each.task for each in office.of(TaskFinished)},
            {each.task for each in office.of(TaskGivenBack)},
        )
    assert receipt.ended == "deadline"
    assert done and given
    assert done | given == {*range(5)} - {each.task for each in office.tasks}
    assert not done & given


def test_a_lambda_asks_for_no_more_tasks_than_it_may_do() -> None:
    office, warm = in_process()
    with office:
        office.tasks.extend(task_step(task) for task in range(4))
        receipt = invoke(office, warm, tasks=2, places=3)
        assert len(office.of(LambdaAsked)) == 2
    assert (receipt.ended, receipt.tasks) == ("enough", 2)


def test_an_offer_that_was_not_asked_for_ends_the_session() -> None:
    office, warm = in_process()
    offer = office.inbox.offer

    def offer_two(peer: Any, task: Any) -> bool:
        office.inbox._sessions[peer].asks += 1
        return offer(peer, task) and offer(peer, task_step(9))

    office.inbox.offer = offer_two  # type: ignore[method-assign]
    with office:
        office.tasks.append(task_step(0, rows=200_000))
        receipt = invoke(office, warm)
    assert receipt.ended == "refused"
    assert "not asked for" in receipt.why


def test_a_version_that_is_not_held_any_more_is_told_to_who_gave_the_task() -> None:
    office, warm = in_process()
    with office:
        office.tasks.extend([task_step(0, version=9), task_step(1)])
        receipt = invoke(office, warm)
        (given,) = office.of(TaskGivenBack)
        check(office, 1)
    assert "version 9 is not held here" in given.why
    assert (receipt.tasks, receipt.given_back) == (1, 1)


def test_an_error_inside_a_program_is_told_to_who_gave_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    from siafu.program.execute.numpy_interpreter import NumpyInterpreter

    def fail(*_: Any) -> None:
        raise MemoryError("no room\nat all")

    office, warm = in_process()
    with office, monkeypatch.context() as patch:
        patch.setattr(NumpyInterpreter, "__call__", fail)
        office.tasks.append(task_step())
        receipt = invoke(office, warm)
        (given,) = office.of(TaskGivenBack)
    assert given.why == "MemoryError: no room at all"
    assert receipt.ended == "dismissed"


def test_who_is_refused_says_why_in_its_receipt() -> None:
    office, warm = in_process()
    with office:
        receipt = invoke(office, warm, run="another run")
    assert receipt.ended == "refused"
    assert "nobody expects" in receipt.why


def test_a_server_that_is_not_there_is_lost_and_not_waited_for_longer_than_told() -> None:
    with over_zeromq() as office:
        told = payload(office, stall_ms=100)
    warm = Warm(over_tcp())
    receipt = Receipt.of(handle(told, Clock(), warm))
    assert receipt.ended == "lost"
    assert "took nothing for 0.1 s" in receipt.why


def test_a_connection_that_died_between_two_invocations_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_session, "_SIGN_OF_LIFE_SECONDS", 0.05)
    office, warm = in_process()
    with office:
        invoke(office, warm)
        dead = warm.link("tasks", next(endpoint for _, endpoint in warm._links))[0]
        dead.send = lambda *_: None  # type: ignore[method-assign]
        office.tasks.append(task_step())
        assert invoke(office, warm, 1).tasks == 1
        check(office, 0)


def test_two_lambdas_share_the_tasks() -> None:
    office, _ = in_process()
    warms = [Warm(lambda endpoint, keys: office.listener.connect(keys.public)) for _ in range(2)]
    receipts: list[Receipt] = []
    with office:
        office.tasks.extend(task_step(task) for task in range(12))
        threads = [
            threading.Thread(target=lambda k=k: receipts.append(invoke(office, warms[k], k)))
            for k in range(2)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        check(office, *range(12))
    assert sum(each.tasks for each in receipts) == 12


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"protocol": 1}, "protocol 1"),
        ({"extra": 1}, "'extra' is not one of its fields"),
        ({"invocation": -1}, "'invocation' is no whole number"),
        ({"graph": {"address": "tcp://h:1", "key": "short"}}, "40 characters"),
        ({"graph": {"address": "file:///etc", "key": make_keys().public}}, "tcp://HOST:PORT"),
        ({"graph": "tcp://h:1"}, "no JSON object"),
        ({"weights": 3}, "'weights' is no list"),
        ({"streaming": 1}, "'streaming' is no bool"),
        ({"run": "two\nlines"}, "'run' is no line"),
        ({"keys": {"public": make_keys().public, "secret": make_keys().secret}}, "does not belong"),
        ({"keys": {"public": make_keys().public}}, "'secret' is missing"),
    ],
)
def test_a_payload_that_is_not_ours_is_refused(change: dict[str, Any], text: str) -> None:
    office, warm = in_process()
    with office, pytest.raises(BadInput, match=text):
        handle(payload(office) | change, Clock(), warm)


@pytest.mark.parametrize(
    "change", [{"tasks": -1}, {"ended": "well"}, {"more": 1}, {"run": 5}, {"protocol": 9}]
)
def test_a_receipt_that_is_not_ours_is_refused(change: dict[str, Any]) -> None:
    form = Receipt("r", 1, 2).form()  # type: ignore[arg-type]
    assert (Receipt.of(form).run, Receipt.of(form).invocation) == ("r", 1)
    with pytest.raises(BadInput):
        Receipt.of(form | change)


def test_secrets_are_not_shown() -> None:
    keys = make_keys()
    assert keys.secret not in repr(keys)


def test_a_lambda_needs_neither_pytorch_nor_numba() -> None:
    code = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numba", "scipy", "safetensors", "rich", "typer", "pyarrow", "boto3"}:
            raise ImportError(f"{name} is not in a Lambda")
sys.meta_path.insert(0, Nothing())
import siafu.serverless.function.handler
known = {"siafu", "numpy", "zmq"}
other = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - known
print(*(name for name in other if not name.startswith("_") and "editable" not in name))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"cython_runtime", "sitecustomize"}

"""Dispatch: the controller, the inbox and the meter together, with the real handler in threads of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zmq

from siafu.base.errors import BadInput, SiafuError
from siafu.cost.prices import lambda_prices
from siafu.serverless.control.controller_options import ControllerOptions
from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.ids import InvocationId, TaskId
from siafu.serverless.function.handler import handle
from siafu.serverless.function.payload import Endpoint
from siafu.serverless.function.warm import Warm
from siafu.serverless.inbox.dispatch import Dispatch
from siafu.serverless.inbox.task_step import TaskStep
from siafu.serverless.platforms.invoker import Invocation, InvocationAnswered, InvocationFailed, Tell, Usage
from siafu.wire import messages as say
from siafu.wire.keys import Keys
from siafu.wire.link import Link
from siafu.wire.tensors import Array
from siafu.wire.zeromq import ZmqLink
from tests.serverless.office import WEIGHTS, Clock, expected, task_step

PRICES = lambda_prices("us-east-1", "x86_64")
BILLED_MS, MEMORY_MB = 1500, 512


class HeldLink(ZmqLink):
    """Keeps its results to itself until `gate` opens."""

    gate: threading.Event

    def send(self, message: say.Message, seconds: float) -> None:
        if isinstance(message, say.TaskEnd):
            self.gate.wait(30)
        super().send(message, seconds)


class InThreads:
    """Runs the handler in threads; each bills the same.

    held:     invocations whose results wait for `gate`
    failures: what invocations come to, instead of running, in turn
    """

    def __init__(self, held: tuple[int, ...] = (), failures: tuple[FailureKind, ...] = ()) -> None:
        self.gate = threading.Event()
        self._held, self._failures = held, list(failures)
        self._context = zmq.Context()
        self._threads: list[threading.Thread] = []

    def start(self) -> None: ...

    def cancel(self, number: InvocationId) -> None: ...

    def invoke(self, invocation: Invocation, tell: Tell) -> None:
        if self._failures:
            failure = Failure(self._failures.pop(0), "a test", "so it is")
            tell(InvocationFailed(invocation.number, failure, Usage(0, MEMORY_MB)))
            return
        thread = threading.Thread(target=self._run, args=(invocation, tell), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.gate.set()
        for thread in self._threads:
            thread.join()
        self._context.term()

    def _run(self, invocation: Invocation, tell: Tell) -> None:
        def connect(endpoint: Endpoint, keys: Keys) -> Link:
            if invocation.number not in self._held:
                return ZmqLink(self._context, endpoint.address, endpoint.key, keys)
            link = HeldLink(self._context, endpoint.address, endpoint.key, keys)
            link.gate = self.gate
            return link

        warm = Warm(connect)
        receipt = handle(dict(invocation.payload) | {"stall_ms": 2000}, Clock(), warm)
        warm.close()
        tell(InvocationAnswered(invocation.number, receipt, Usage(BILLED_MS, MEMORY_MB)))


class Results:
    """What came of tasks: `wait` gives a task's outputs, or raises what ended the run."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._outputs: dict[int, dict[str, Array]] = {}
        self._changed = threading.Condition()

    def take(self, task: int, outputs: dict[str, Array]) -> None:
        with self._changed:
            assert task not in self._outputs, "a task has one result"
            self._outputs[task] = outputs
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait(self, task: int) -> dict[str, Array]:
        with self._changed:
            assert self._changed.wait_for(lambda: task in self._outputs or self.failures, 60)
            if self.failures:
                raise self.failures[0]
            return self._outputs[task]


@contextmanager
def dispatching(invoker: InThreads, **options: Any) -> Iterator[tuple[Dispatch, Results]]:
    results = Results()
    given = {"where": "a test", "count": 2, "spares": 1, "wait": 0.01, **options}
    dispatch = Dispatch(
        invoker, ControllerOptions(**given), PRICES, {1: WEIGHTS}.get, results.fail, listen="127.0.0.1"
    )
    dispatch.start()
    try:
        yield dispatch, results
    finally:
        invoker.gate.set()
        with suppress(RuntimeError):
            dispatch.stop()


def submit(dispatch: Dispatch, results: Results, task: int, kind: str = "T1") -> None:
    def given(number: TaskId) -> TaskStep:
        return replace(task_step(task), task=number)

    dispatch.submit(given, kind, (task,), lambda outputs: results.take(task, outputs))


def check(outputs: dict[str, Array], task: int) -> None:
    for name, value in expected(task_step(task)).items():
        np.testing.assert_allclose(outputs[name], value, rtol=1e-11, atol=1e-12)


def test_a_late_result_is_dropped_and_counted() -> None:
    invoker = InThreads(held=(0,))
    with dispatching(invoker, floor=0.1, default=0.3) as (dispatch, results):
        submit(dispatch, results, 0)
        check(results.wait(0), 0)
        invoker.gate.set()
        dispatch.dismiss_all(30)
        used = dispatch.usage()
    assert used["relaunched"] >= 1
    assert used["duplicates_dropped"] >= 1
    assert used["kinds"]["T1"]["tasks"] == 1


def test_the_meter_counts_what_the_tasks_shapes_come_to() -> None:
    with dispatching(InThreads(), count=1) as (dispatch, results):
        for task in range(5):
            submit(dispatch, results, task, kind="T1" if task < 3 else "∇T1")
        for task in range(5):
            check(results.wait(task), task)
        dispatch.dismiss_all(30)
        used = dispatch.usage()
    rows, number = 3000, 8
    received = rows * (16 * number + number)  # rows 16 wide, and labels
    sent = (
        rows * 16 * number + number + (16 * 5 + 5) * number
    )  # their gradient, the loss, two weights' gradients
    assert used["kinds"] == {
        "T1": {"tasks": 3, "bytes_received": 3 * received, "bytes_sent": 3 * sent},
        "∇T1": {"tasks": 2, "bytes_received": 2 * received, "bytes_sent": 2 * sent},
    }
    assert used["weights"] == {"requests": 1, "bytes": (16 * 5 + 5) * number}


def test_the_bill_is_time_by_memory_and_requests_by_their_price() -> None:
    with dispatching(InThreads(failures=2 * (FailureKind.THROTTLED,)), count=1) as (dispatch, results):
        submit(dispatch, results, 0)
        results.wait(0)
        dispatch.dismiss_all(30)
        used = dispatch.usage()
    seconds = BILLED_MS / 1000 * MEMORY_MB / 1024
    assert used["billed_gb_seconds"] == pytest.approx(seconds)
    assert used["usd"] == pytest.approx(
        seconds * PRICES.usd_per_gb_second + 1 * PRICES.usd_per_million_requests / 1e6
    )
    assert (used["invocations"], used["requests"], used["refused"]) == (3, 1, 2)


@pytest.mark.parametrize(
    ("kind", "error"),
    [(FailureKind.DENIED, BadInput), (FailureKind.NO_FUNCTION, BadInput), (FailureKind.CRASHED, SiafuError)],
)
def test_what_the_user_must_mend_is_told_from_what_went_wrong(
    kind: FailureKind, error: type[Exception]
) -> None:
    with (
        dispatching(InThreads(failures=50 * (kind,)), first_setbacks=2, longest_wait=0.01) as (
            dispatch,
            results,
        ),
        pytest.raises(SiafuError) as failed,
    ):
        submit(dispatch, results, 0)
        results.wait(0)
    assert type(failed.value) is error
    assert "\n" not in str(failed.value)

"""The real handler in processes of its own: in our pool, and under AWS's emulator through boto3."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from siafu.serverless.control.failure import FailureKind
from siafu.serverless.deployment.package import HANDLER
from siafu.serverless.function.faults import FaultPlan
from siafu.serverless.function.probe import probe
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.platforms.environment import Function, Limits
from siafu.serverless.platforms.invoker import InvocationAnswered, Invoker
from siafu.serverless.platforms.local_invoker import LocalInvoker
from tests.serverless.calls import Calls
from tests.serverless.emulator import EmulatorInvoker, emulator_binary
from tests.serverless.office import Office, expected, over_zeromq, payload, task_step

pytest.importorskip("boto3", reason="boto3 is not installed")

_FUNCTION = Function(HANDLER)


@pytest.fixture(params=["local", "emulator"])
def calls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Calls]:
    """Two slots of either kind."""
    invoker: Invoker
    if request.param == "local":
        invoker = LocalInvoker(_FUNCTION, 2)
    else:
        invoker = EmulatorInvoker(emulator_binary(tmp_path), _FUNCTION, 2)
    invoker.start()
    yield Calls(invoker)
    invoker.stop()


def _check(office: Office, *tasks: int) -> None:
    results = office.results()
    assert sorted(results) == list(tasks)
    for task in tasks:
        for name, value in expected(task_step(task)).items():
            np.testing.assert_allclose(results[task][name], value, rtol=1e-12, atol=1e-12)


def test_tasks_are_done_by_lambdas_in_processes_of_their_own(calls: Calls) -> None:
    with over_zeromq() as office:
        office.tasks.extend(task_step(task) for task in range(6))
        for number in range(2):
            calls.send(number, **payload(office, number))
        outcomes = [calls.next() for _ in range(2)]
        _check(office, *range(6))
    receipts = [
        Receipt.of(outcome.receipt) for outcome in outcomes if isinstance(outcome, InvocationAnswered)
    ]
    assert sum(receipt.tasks for receipt in receipts) == 6
    assert {receipt.ended for receipt in receipts} == {"dismissed"}


def test_the_next_invocation_finds_programs_and_weights_where_the_last_left_them(calls: Calls) -> None:
    receipts = []
    with over_zeromq() as office:
        for number in range(4):
            office.tasks.append(task_step(number))
            receipts.append(Receipt.of(calls.answer(number, **payload(office, number)).receipt))
        _check(office, *range(4))
    assert receipts[0].cold == receipts[0].programs == 1
    assert receipts[3].cold == receipts[3].programs == receipts[3].weights == 0


def test_the_probe_needs_no_server(calls: Calls) -> None:
    receipt = Receipt.of(calls.answer(**probe().payload).receipt)
    assert (receipt.run, receipt.tasks, receipt.ended) == ("probe", 0, "lost")


def test_a_payload_of_another_version_is_of_no_use_to_try_again(calls: Calls) -> None:
    failed = calls.failure(**{**probe().payload, "protocol": 999})
    assert failed.failure.kind is FailureKind.UNFIT
    assert "deploy it again" in failed.failure.detail


def test_latency_and_bandwidth_are_kept_by_the_handler() -> None:
    invoker = LocalInvoker(_FUNCTION, 1, Limits(latency_ms=40, mbps=50), keep_warm=1)
    invoker.start()
    try:
        with over_zeromq() as office:
            office.tasks.append(task_step())
            outcome = Calls(invoker).answer(0, **payload(office))
            _check(office, 0)
    finally:
        invoker.stop()
    receipt = Receipt.of(outcome.receipt)
    # Hello and welcome, ask and offer, pull and rows: three round trips at the least.
    assert receipt.total_ms >= 6 * 40
    assert receipt.total_ms >= 1000 * max(receipt.bytes_in, receipt.bytes_out) * 8 / 50e6


def test_a_killed_lambda_has_no_receipt_and_the_next_does_the_rest() -> None:
    plan = FaultPlan(0, kill=0.5, window=0.0)
    struck = next(number for number in range(100) if plan.fault(number))
    spared = next(number for number in range(100) if not plan.fault(number))
    invoker = LocalInvoker(_FUNCTION, 1, faults=plan, keep_warm=1)
    invoker.start()
    try:
        calls = Calls(invoker)
        with over_zeromq() as office:
            assert calls.failure(struck, **payload(office, struck)).failure.kind is FailureKind.CRASHED
            office.tasks.append(task_step())
            assert Receipt.of(calls.answer(spared, **payload(office, spared)).receipt).tasks == 1
            _check(office, 0)
    finally:
        invoker.stop()

"""The same handler under AWS's own emulator, through boto3: what it says, our local pool says too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from siafu.serverless.control.failure import FailureKind
from siafu.serverless.platforms.environment import Limits
from siafu.serverless.platforms.invoker import InvocationAnswered, Invoker
from siafu.serverless.platforms.local_invoker import LocalInvoker
from tests.serverless.calls import TOY, Calls
from tests.serverless.emulator import EmulatorInvoker, emulator_binary

pytest.importorskip("boto3", reason="boto3 is not installed")


@pytest.fixture(params=["local", "emulator"])
def calls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Calls]:
    """Two slots, of either kind, with a timeout of two seconds."""
    invoker: Invoker
    if request.param == "local":
        invoker = LocalInvoker(TOY, 2, Limits(timeout_seconds=2))
    else:
        invoker = EmulatorInvoker(emulator_binary(tmp_path), TOY, 2, timeout_seconds=2)
    invoker.start()
    yield Calls(invoker)
    invoker.stop()


def test_the_payload_comes_and_the_receipt_returns(calls: Calls) -> None:
    first = calls.answer(rows=[1, "ü"])
    assert first.receipt["echo"] == {"rows": [1, "ü"]}
    assert 0 < first.receipt["left_ms"] <= 2000
    assert first.usage.memory_mb == 1769


def test_what_a_module_holds_stays_between_invocations(calls: Calls) -> None:
    seen = [calls.answer().receipt for _ in range(4)]
    assert max(receipt["calls"] for receipt in seen) >= 2
    assert len({receipt["pid"] for receipt in seen}) <= 2


def test_two_run_at_once(calls: Calls, tmp_path: Path) -> None:
    calls.send(do="wait for file", path=str(tmp_path / "go"))
    assert calls.answer()
    (tmp_path / "go").touch()
    assert isinstance(calls.next(), InvocationAnswered)


def test_a_handler_that_raises_is_a_failure(calls: Calls) -> None:
    failed = calls.failure(do="raise")
    assert failed.failure.kind is FailureKind.CRASHED
    assert "ValueError: this was asked for" in failed.failure.detail


def test_a_process_that_ends_is_a_failure_and_is_replaced(calls: Calls) -> None:
    failed = calls.failure(do="exit").failure
    # The emulator's 502 says less than AWS, which answers with Runtime.ExitError: either way it is tried again.
    assert failed.kind in (FailureKind.CRASHED, FailureKind.UNAVAILABLE)
    assert calls.answer()
    assert calls.answer()


@pytest.mark.slow
def test_a_timeout_is_told_and_the_slot_works_again(calls: Calls) -> None:
    failed = calls.failure(do="wait", seconds=600)
    assert failed.failure.kind is FailureKind.TIMED_OUT
    assert "Task timed out after 2.00 seconds" in failed.failure.detail
    assert calls.answer()
    assert calls.answer()


def test_an_answer_that_is_no_object_is_no_receipt(calls: Calls) -> None:
    assert "no receipt" in calls.failure(do="text").failure.detail

"""The local pool: real processes with AWS's runtime client in them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.serverless.control.failure import FailureKind
from siafu.serverless.control.ids import InvocationId
from siafu.serverless.function.faults import FaultPlan
from siafu.serverless.platforms.environment import Environment, Function, Limits
from siafu.serverless.platforms.invoker import InvocationAnswered, InvocationFailed
from siafu.serverless.platforms.local_invoker import LocalInvoker
from tests.serverless.calls import TOY, Calls

Pool = Callable[..., Calls]


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Make pools that end with the test."""
    made: list[LocalInvoker] = []

    def make(slots: int = 1, limits: Limits | None = None, **options: Any) -> Calls:
        invoker = LocalInvoker(options.pop("function", TOY), slots, limits, **options)
        made.append(invoker)
        invoker.start()
        return Calls(invoker)

    yield make
    for invoker in made:
        invoker.stop()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_the_handler_gets_the_payload_and_its_receipt_comes_back(pool: Pool) -> None:
    assert pool().answer(rows=[1, 2, {"x": "ü"}]).receipt["echo"] == {"rows": [1, 2, {"x": "ü"}]}


def test_the_second_invocation_is_warm(pool: Pool) -> None:
    calls = pool()
    first, second = calls.answer(), calls.answer()
    assert first.usage.init_ms is not None
    assert first.usage.billed_ms >= first.usage.init_ms
    assert second.usage.init_ms is None
    assert (second.receipt["pid"], second.receipt["calls"]) == (first.receipt["pid"], 2)


def test_a_slot_that_is_kept_warm_has_no_cold_start(pool: Pool) -> None:
    assert pool(keep_warm=1).answer().usage.init_ms is None


def test_invocations_run_at_once_in_processes_of_their_own(pool: Pool, tmp_path: Path) -> None:
    calls = pool(slots=2)
    calls.send(do="wait for file", path=str(tmp_path / "go"))
    second = calls.answer()
    (tmp_path / "go").touch()
    first = calls.next()
    assert isinstance(first, InvocationAnswered)
    assert (second.number, first.number) == (1, 0)
    assert first.receipt["pid"] != second.receipt["pid"]


def test_more_invocations_than_slots_are_throttled(pool: Pool, tmp_path: Path) -> None:
    calls = pool(slots=1)
    calls.send(do="wait for file", path=str(tmp_path / "go"))
    throttled = calls.failure()
    assert throttled.failure.kind is FailureKind.THROTTLED
    assert throttled.usage.billed_ms == 0
    (tmp_path / "go").touch()
    assert isinstance(calls.next(), InvocationAnswered)


def test_a_handler_that_raises_says_so_and_lives_on(pool: Pool) -> None:
    calls = pool()
    failed = calls.failure(do="raise")
    assert failed.failure.kind is FailureKind.CRASHED
    assert "ValueError: this was asked for" in failed.failure.detail
    assert calls.answer().receipt["calls"] == 2


def test_a_process_that_ends_is_replaced(pool: Pool) -> None:
    calls = pool()
    assert "exit status 3" in calls.failure(do="exit").failure.detail
    assert calls.answer().receipt["calls"] == 1


def test_a_process_that_is_killed_from_outside_is_replaced(pool: Pool, tmp_path: Path) -> None:
    calls = pool()
    pid = calls.answer().receipt["pid"]
    calls.send(do="wait for file", path=str(tmp_path / "never"))
    _wait_until((tmp_path / "never.started").exists)
    os.kill(pid, signal.SIGKILL)
    killed = calls.next()
    assert isinstance(killed, InvocationFailed)
    assert "SIGKILL" in killed.failure.detail
    assert calls.answer().receipt["pid"] != pid


def test_a_process_may_end_by_itself_at_any_moment_of_its_being_killed() -> None:
    async def kill_until_it_is_gone() -> None:
        environment = Environment(0, TOY, Limits())
        assert await environment.warm_up() is None
        while environment.is_warm:
            environment.kill()
            await asyncio.sleep(0)  # each step of the loop in which asyncio learns of the end
        await environment.close()

    asyncio.run(kill_until_it_is_gone())


def test_memory_beyond_the_cap_ends_the_process(pool: Pool) -> None:
    calls = pool(limits=Limits(memory_mb=128))
    failed = calls.failure(do="eat", megabytes=200, seconds=30)
    assert failed.failure.kind is FailureKind.OUT_OF_MEMORY
    assert "of 128 MB" in failed.failure.detail
    assert calls.answer(do="eat", megabytes=10).receipt["calls"] == 1


def test_a_single_huge_allocation_never_happens(pool: Pool) -> None:
    failed = pool(limits=Limits(memory_mb=128)).failure(do="huge")
    assert failed.failure.kind is FailureKind.OUT_OF_MEMORY


def test_a_timeout_kills_and_the_slot_starts_anew(pool: Pool) -> None:
    calls = pool(limits=Limits(timeout_seconds=0.3))
    pid = calls.answer().receipt["pid"]
    failed = calls.failure(do="wait", seconds=600)
    assert failed.failure.kind is FailureKind.TIMED_OUT
    assert failed.usage.billed_ms >= 300
    assert not _is_alive(pid)
    assert calls.answer().receipt["pid"] != pid


def test_the_handler_knows_how_much_time_it_has(pool: Pool) -> None:
    assert 0 < pool(limits=Limits(timeout_seconds=20)).answer().receipt["left_ms"] <= 20_000


def test_limits_of_the_network_are_told_to_the_handler(pool: Pool) -> None:
    variables = pool(limits=Limits(latency_ms=50, mbps=200)).answer().receipt["variables"]
    assert (variables["SIAFU_WIRE_LATENCY_MS"], variables["SIAFU_WIRE_MBPS"]) == ("50", "200")
    assert variables["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "1769"


def test_credentials_of_the_user_do_not_reach_the_handler(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "AWS_SECRET_ACCESS_KEY" not in pool().answer().receipt["variables"]


@pytest.mark.parametrize(("what", "told"), [("text", "no receipt"), ("long", "ResponseSizeTooLarge")])
def test_an_answer_that_is_no_receipt_is_a_failure(pool: Pool, what: str, told: str) -> None:
    calls = pool()
    assert told in calls.failure(do=what).failure.detail
    assert calls.answer()


def test_a_cancelled_invocation_is_killed_and_told(pool: Pool, tmp_path: Path) -> None:
    calls = pool(slots=2)
    number = calls.send(do="wait for file", path=str(tmp_path / "never"))
    calls.answer()
    calls.invoker.cancel(number)
    cancelled = calls.next()
    assert isinstance(cancelled, InvocationFailed)
    assert (cancelled.number, cancelled.failure.detail) == (number, "cancelled")


def test_cancelling_what_has_ended_does_nothing(pool: Pool) -> None:
    calls = pool()
    first = calls.answer()
    calls.invoker.cancel(first.number)
    calls.invoker.cancel(InvocationId(999))
    assert calls.answer().receipt["pid"] == first.receipt["pid"]


def test_after_a_stop_no_process_is_left_and_nothing_is_told(pool: Pool, tmp_path: Path) -> None:
    calls = pool(slots=3)
    pid = calls.answer().receipt["pid"]
    calls.send(do="wait for file", path=str(tmp_path / "never"))
    calls.send(do="wait for file", path=str(tmp_path / "never"))
    calls.invoker.stop()
    calls.invoker.stop()
    assert not _is_alive(pid)
    assert calls.nothing_more()


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        ("not_there.handler", "No module named 'not_there'"),
        ("toy_handler.missing", "Handler 'missing' missing"),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_one_clear_line(pool: Pool, handler: str, told: str) -> None:
    with pytest.raises(BadInput, match="does not start") as refused:
        pool(function=Function(handler, TOY.paths), keep_warm=1)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    cold = pool(function=Function(handler, TOY.paths)).failure()
    assert cold.failure.is_final


def test_a_payload_that_is_too_long_is_refused(pool: Pool) -> None:
    with pytest.raises(BadInput, match="6 MB at most"):
        pool().send(text="x" * 7_000_000)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("kill", FailureKind.CRASHED),
        ("hang", FailureKind.TIMED_OUT),
        ("error", FailureKind.CRASHED),
        ("garbage", FailureKind.CRASHED),
    ],
)
def test_a_fault_fails_the_invocation_and_not_the_next(pool: Pool, fault: str, kind: FailureKind) -> None:
    plan = FaultPlan(0, **{fault: 0.5}, window=0.05)
    struck = next(number for number in range(100) if plan.fault(number))
    spared = next(number for number in range(100) if not plan.fault(number))
    calls = pool(limits=Limits(timeout_seconds=0.5), faults=plan, keep_warm=1)
    assert calls.failure(struck).failure.kind is kind
    assert calls.answer(spared)


def test_a_slow_invocation_answers_late(pool: Pool) -> None:
    calls = pool(faults=FaultPlan(0, slow=1.0, window=0.0, slow_seconds=0.3), keep_warm=1)
    assert calls.answer().usage.billed_ms >= 300


def test_a_duplicate_is_answered_twice_by_two_processes(pool: Pool) -> None:
    calls = pool(slots=2, faults=FaultPlan(0, duplicate=1.0))
    first = calls.answer()
    second = calls.next()
    assert isinstance(second, InvocationAnswered)
    assert second.number == first.number
    assert second.receipt["pid"] != first.receipt["pid"]


def test_a_hung_process_dies_with_its_killed_parent(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from siafu.serverless.platforms.invoker import Invocation
from siafu.serverless.platforms.environment import Function
from siafu.serverless.platforms.local_invoker import LocalInvoker
invoker = LocalInvoker(Function("toy_handler.handler", (Path({str(TOY.paths[0])!r}),)), 1)
invoker.start()
invoker.invoke(Invocation(0, {{}}), lambda outcome: print(outcome.receipt["pid"], flush=True))
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _wait_until(lambda: not _is_running(child))


def _is_running(pid: int) -> bool:
    """A zombie that no one has collected yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_many_invocations_over_few_slots_each_end_once(pool: Pool) -> None:
    calls = pool(slots=4, keep_warm=4)
    waiting, ended = list(range(100, 140)), []
    for _ in range(4):
        calls.send(waiting.pop())
    while len(ended) < 40:
        ended.append(calls.next().number)
        if waiting:
            calls.send(waiting.pop())
    assert sorted(ended) == list(range(100, 140))


def _killed_at_its_first_start(directory: Path) -> Function:
    """A function whose first process is killed while it starts."""
    (directory / "doomed.py").write_text(
        "import os, pathlib, signal\n"
        "mark = pathlib.Path(os.environ['MARK'])\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def handler(event, context):\n"
        "    return {'came': True}\n"
    )
    return Function("doomed.handler", (directory,), {"MARK": str(directory / "mark")})


def test_a_process_that_is_killed_while_it_starts_is_a_matter_to_try_again(
    pool: Pool, tmp_path: Path
) -> None:
    calls = pool(function=_killed_at_its_first_start(tmp_path))
    failed = calls.failure().failure
    assert failed.kind is FailureKind.CRASHED
    assert not failed.is_final
    assert "while it started (signal: SIGKILL)" in failed.detail
    assert calls.answer().receipt == {"came": True}


def test_a_pool_is_there_although_one_of_its_processes_was_killed(pool: Pool, tmp_path: Path) -> None:
    assert pool(function=_killed_at_its_first_start(tmp_path), keep_warm=1).answer()


def test_what_is_pressed_at_a_terminal_does_not_reach_lambdas(pool: Pool) -> None:
    assert os.getpgid(pool().answer().receipt["pid"]) != os.getpgid(0)

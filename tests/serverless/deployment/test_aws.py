"""The AWS invoker, against a server that answers as AWS does."""

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.serverless.control.failure import FailureKind
from siafu.serverless.deployment.aws import Place
from siafu.serverless.platforms.aws_invoker import AwsInvoker, DeployedFunction, usage_from
from siafu.serverless.platforms.invoker import InvocationAnswered
from tests.serverless.calls import Calls
from tests.serverless.fake_lambda import FakeLambda, serving

pytest.importorskip("boto3", reason="boto3 is not installed")

_REPORT = (
    "some words\nREPORT RequestId: 7d0e\tDuration: 101.22 ms\tBilled Duration: 345 ms\tMemory Size: 512 MB\t"
    "Max Memory Used: 61 MB\tInit Duration: 242.97 ms\t\n"
)


@pytest.fixture
def fake() -> Iterator[FakeLambda]:
    with serving(FakeLambda()) as server:
        yield server


def _calls(url: str, **options: Any) -> Calls:
    function = DeployedFunction("train", Place("eu-west-1", endpoint=url), timeout_seconds=20, **options)
    invoker = AwsInvoker(function, may_check=False)
    invoker.start()
    return Calls(invoker)


def _error(code: str, status: int, message: str = "so it is") -> FakeLambda:
    return FakeLambda(status, {"x-amzn-ErrorType": code}, json.dumps({"Message": message}).encode())


def test_the_payload_goes_to_the_function_and_qualifier_that_were_named(fake: FakeLambda) -> None:
    fake.body = b'{"done": 3}'
    assert _calls(fake.url, qualifier="live").answer(rows=2).receipt == {"done": 3}
    path, _, body = fake.asked[0]
    assert path == "/2015-03-31/functions/train/invocations?Qualifier=live"
    assert json.loads(body) == {"rows": 2}


def test_the_bill_is_read_from_the_report(fake: FakeLambda) -> None:
    fake.headers = {"X-Amz-Log-Result": base64.b64encode(_REPORT.encode()).decode()}
    usage = _calls(fake.url).answer().usage
    assert (usage.billed_ms, usage.memory_mb, usage.init_ms) == (345, 512, 243)
    assert fake.asked[0][1]["X-Amz-Log-Type"] == "Tail"


def test_without_a_report_the_time_seen_from_here_is_billed() -> None:
    usage = usage_from("Billed Duration: 9 ms, said the handler", 17, 1769)
    assert (usage.billed_ms, usage.memory_mb, usage.init_ms) == (17, 1769, None)


def test_many_invocations_are_out_at_once() -> None:
    with serving(FakeLambda(together=16)) as fake:
        calls = _calls(fake.url)
        sent = {calls.send() for _ in range(16)}
        ended = [calls.next() for _ in range(16)]
        assert all(isinstance(outcome, InvocationAnswered) for outcome in ended)
        assert {outcome.number for outcome in ended} == sent


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("TooManyRequestsException", 429, FailureKind.THROTTLED),
        ("EC2ThrottledException", 502, FailureKind.THROTTLED),
        ("ServiceException", 500, FailureKind.UNAVAILABLE),
        ("ResourceConflictException", 409, FailureKind.UNAVAILABLE),
        ("AccessDeniedException", 403, FailureKind.DENIED),
        ("UnrecognizedClientException", 403, FailureKind.DENIED),
        ("ExpiredTokenException", 400, FailureKind.DENIED),
        ("ResourceNotFoundException", 404, FailureKind.NO_FUNCTION),
        ("InvalidRequestContentException", 400, FailureKind.UNFIT),
    ],
)
def test_errors_of_aws_are_told_apart(code: str, status: int, kind: FailureKind) -> None:
    with serving(_error(code, status)) as fake:
        failed = _calls(fake.url).failure()
    assert failed.failure.kind is kind
    assert failed.failure.is_final == (
        kind in (FailureKind.DENIED, FailureKind.NO_FUNCTION, FailureKind.UNFIT)
    )
    assert failed.usage.billed_ms == 0
    assert "function train in" in str(failed.failure)
    assert len(fake.asked) == 1  # whether to try again is for the controller


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"errorType": "ValueError", "errorMessage": "no", "stackTrace": []}, FailureKind.CRASHED),
        ({"errorType": "Sandbox.Timedout", "errorMessage": "late"}, FailureKind.TIMED_OUT),
        ({"errorMessage": "2026-01-01 id Task timed out after 3.00 seconds"}, FailureKind.TIMED_OUT),
        ({"errorType": "Runtime.OutOfMemory", "errorMessage": "signal: killed"}, FailureKind.OUT_OF_MEMORY),
        ({"errorType": "Runtime.ExitError", "errorMessage": "exit status 3"}, FailureKind.CRASHED),
        ({"errorType": "Runtime.ImportModuleError", "errorMessage": "No module"}, FailureKind.UNFIT),
        ("words", FailureKind.CRASHED),
    ],
)
def test_what_went_wrong_in_the_function_is_told_apart(
    fake: FakeLambda, body: object, kind: FailureKind
) -> None:
    fake.headers, fake.body = {"X-Amz-Function-Error": "Unhandled"}, json.dumps(body).encode()
    assert _calls(fake.url).failure().failure.kind is kind


def test_nobody_there_is_a_matter_to_try_again() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        failed = _calls(f"http://127.0.0.1:{unused.getsockname()[1]}").failure()
    assert failed.failure.kind is FailureKind.UNAVAILABLE
    assert not failed.failure.is_final


def test_the_start_asks_whether_the_function_may_be_invoked(fake: FakeLambda) -> None:
    fake.status, fake.body = 204, b""
    AwsInvoker(DeployedFunction("train", Place("eu-west-1", endpoint=fake.url))).start()
    assert fake.asked[0][1]["X-Amz-Invocation-Type"] == "DryRun"


@pytest.mark.parametrize(
    ("code", "status", "advice"),
    [
        ("AccessDeniedException", 403, "use credentials that may invoke the function"),
        ("ResourceNotFoundException", 404, "run `siafu lambda deploy`"),
    ],
)
def test_a_wrong_account_or_function_is_one_line_at_the_start(code: str, status: int, advice: str) -> None:
    function = "arn:aws:lambda:eu-west-1:123456789012:function:train"
    with serving(_error(code, status, "no\nsuch luck")) as fake, pytest.raises(BadInput) as refused:
        AwsInvoker(DeployedFunction(function, Place("eu-west-1", endpoint=fake.url))).start()
    assert advice in str(refused.value)
    assert function in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_credentials_are_one_line(monkeypatch: pytest.MonkeyPatch, fake: FakeLambda) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BadInput, match="Unable to locate credentials"):
        AwsInvoker(DeployedFunction("train", Place("eu-west-1", endpoint=fake.url))).start()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (Place(), "You must specify a region.*--region"),
        (Place("not a region"), "not a region.*--region"),
        (Place("eu-west-1", profile="nobody"), "nobody.*check the credentials"),
        (Place("eu-west-1", endpoint="nowhere"), "nowhere"),
    ],
)
def test_a_place_that_cannot_be_is_one_line(place: Place, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        AwsInvoker(DeployedFunction("train", place)).start()


def test_after_a_stop_nothing_is_told() -> None:
    with serving(FakeLambda(together=2)) as fake:
        calls = _calls(fake.url)
        calls.send()
        calls.invoker.stop()
        other = _calls(fake.url)
        other.answer()
        assert calls.nothing_more()


def test_cancelling_changes_nothing(fake: FakeLambda) -> None:
    calls = _calls(fake.url)
    calls.invoker.cancel(calls.send())
    assert isinstance(calls.next(), InvocationAnswered)

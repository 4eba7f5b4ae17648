"""`siafu lambda`."""

import json
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Siafu
from tests.serverless.conftest import models_of_aws_are_read_once, nothing_of_the_users_aws  # noqa: F401
from tests.serverless.fake_lambda import FakeLambda, serving

moto = pytest.importorskip("moto", reason="moto is not installed: it stands in for AWS here")

_WHEELS = (
    "numpy-2.0.0-cp312-cp312-manylinux_2_28_x86_64.whl",
    "pyzmq-27.0.0-cp312-abi3-manylinux2014_x86_64.whl",
)


@pytest.fixture
def aws() -> Iterator[None]:
    with moto.mock_aws():
        yield


@pytest.fixture
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheels")
    for name in _WHEELS:
        with zipfile.ZipFile(directory / name, "w") as archive:
            archive.writestr("library/__init__.py", "")
    return directory


@pytest.mark.slow
def test_deploy_status_and_teardown_tell_what_they_did(siafu: Siafu, aws: None, wheels: Path) -> None:
    place = {"region": "eu-west-1", "json": True}
    made = siafu("lambda", "deploy", wheels=wheels, memory=512, **place)
    assert made.code == 0, made.err
    assert made.json()["changes"][0] == "iam.create_role"
    assert "make the function" in made.err
    assert siafu("lambda", "deploy", wheels=wheels, memory=512, **place).json()["changes"] == []

    found = siafu("lambda", "status", **place).json()
    assert (found["deployed"], found["by_siafu"], found["memory_mb"]) == (True, True, 512)
    assert found["sha256"] == made.json()["sha256"]
    assert "512" in siafu("lambda", "status", region="eu-west-1").out

    assert "lambda.delete_function" in siafu("lambda", "teardown", **place).json()["changes"]
    assert siafu("lambda", "status", **place).json()["deployed"] is False
    assert "nothing of siafu is in eu-west-1" in siafu("lambda", "teardown", **place).err


@pytest.mark.slow
def test_a_dry_run_shows_every_call_and_makes_none(siafu: Siafu, aws: None, wheels: Path) -> None:
    ended = siafu("lambda", "deploy", wheels=wheels, region="eu-west-1", concurrency=9, dry_run=True)
    for call in ("iam.create_role", "iam.put_role_policy", "logs.create_log_group", "lambda.create_function"):
        assert call in ended.out
    assert "logs:PutLogEvents" in ended.out
    assert '"ReservedConcurrentExecutions": 9' in ended.out
    assert not siafu("lambda", "status", region="eu-west-1", json=True).json()["role"]
    siafu("lambda", "deploy", wheels=wheels, region="eu-west-1")
    assert "lambda.delete_function" in siafu("lambda", "teardown", region="eu-west-1", dry_run=True).out
    assert siafu("lambda", "status", region="eu-west-1", json=True).json()["deployed"]


def test_the_probe_is_answered_and_billed(siafu: Siafu) -> None:
    with serving(FakeLambda(body=b'{"ended": "idle"}')) as fake:
        ended = siafu("lambda", "invoke", region="eu-west-1", endpoint=fake.url, count=3, json=True)
    assert ended.code == 0, ended.err
    assert [each["receipt"] for each in ended.json()["invocations"]] == 3 * [{"ended": "idle"}]
    assert {json.loads(body)["run"] for _, _, body in fake.asked} == {"probe"}


def test_a_payload_of_ones_own_is_sent(siafu: Siafu, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"x": 1}')
    with serving(FakeLambda()) as fake:
        siafu("lambda", "invoke", region="eu-west-1", endpoint=fake.url, payload="payload.json")
    assert json.loads(fake.asked[0][2]) == {"x": 1}


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_payload_that_is_no_object_is_refused(siafu: Siafu, tmp_path: Path, text: str) -> None:
    (tmp_path / "payload.json").write_text(text)
    assert "payload.json" in siafu.refused("lambda", "invoke", region="eu-west-1", payload="payload.json")


def test_an_invocation_that_fails_is_told(siafu: Siafu) -> None:
    body = b'{"errorType": "ValueError", "errorMessage": "oh"}'
    with serving(FakeLambda(body=body)) as fake:
        ended = siafu("lambda", "invoke", region="eu-west-1", endpoint=fake.url)
    assert ended.code == 1
    assert "1 of 1 invocations failed: ValueError: oh" in ended.err.splitlines()[-1]


def test_logs_are_printed_from_a_time_on(siafu: Siafu, aws: None) -> None:
    import boto3

    logs = boto3.client("logs", region_name="eu-west-1")
    logs.create_log_group(logGroupName="/aws/lambda/siafu")
    logs.create_log_stream(logGroupName="/aws/lambda/siafu", logStreamName="one")
    now = int(time.time() * 1000)
    events = [
        {"timestamp": now - 3_600_000, "message": "long ago"},
        {"timestamp": now - 1000, "message": "just now"},
    ]
    logs.put_log_events(logGroupName="/aws/lambda/siafu", logStreamName="one", logEvents=events)
    ended = siafu("lambda", "logs", region="eu-west-1", minutes=5)
    assert "just now" in ended.out
    assert "long ago" not in ended.out


def test_logs_of_no_function_are_one_line(siafu: Siafu, aws: None) -> None:
    assert "AWS did not give the logs of ants" in siafu.refused(
        "lambda", "logs", name="ants", region="eu-west-1"
    )


@pytest.mark.parametrize("command", ["deploy", "status", "teardown", "logs", "invoke"])
def test_without_a_region_there_is_one_clear_line(siafu: Siafu, command: str) -> None:
    assert "name a region with --region" in siafu.refused("lambda", command)


@pytest.mark.parametrize("command", ["deploy", "status", "teardown", "logs", "invoke"])
def test_without_credentials_there_is_one_clear_line(
    siafu: Siafu, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    line = siafu.refused("lambda", command, region="eu-west-1")
    assert "Unable to locate credentials" in line


def test_a_service_that_cannot_be_reached_is_one_clear_line(siafu: Siafu) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        line = siafu.refused("lambda", "status", region="mars-1", endpoint=url)
    assert "check --region, --endpoint and the network" in line


def test_credentials_that_aws_does_not_know_are_one_clear_line(siafu: Siafu) -> None:
    body = (
        b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
        b"<Code>InvalidClientTokenId</Code><Message>The security token is invalid.</Message></Error></ErrorResponse>"
    )
    with serving(FakeLambda(403, {"Content-Type": "text/xml"}, body)) as fake:
        line = siafu.refused("lambda", "status", region="eu-west-1", endpoint=fake.url)
    assert "The security token is invalid" in line
    assert "check the credentials" in line

"""Where Lambdas run: on this machine, and on AWS as moto plays it."""

import io
import socket
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.cost.prices import lambda_prices
from siafu.serverless.deployment.aws import Place
from siafu.serverless.function.faults import FaultPlan
from siafu.serverless.platforms import platform
from siafu.serverless.platforms.environment import Limits
from siafu.serverless.platforms.platform import AwsPlatform, LocalPlatform

moto = pytest.importorskip("moto", reason="moto is not installed: it stands in for AWS here")


@pytest.fixture
def aws() -> Iterator[None]:
    with moto.mock_aws():
        yield


def deploy(region: str, name: str = "siafu", **options: Any) -> None:
    """A function, as AWS's own API makes one."""
    import boto3

    trust = '{"Version": "2012-10-17", "Statement": []}'
    role = boto3.client("iam", region_name=region).create_role(
        RoleName=f"{name}-{region}", AssumeRolePolicyDocument=trust
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("module.py", "")
    given = {"MemorySize": 512, "Timeout": 77, "Architectures": ["x86_64"]} | options
    boto3.client("lambda", region_name=region).create_function(
        FunctionName=name,
        Runtime="python3.12",
        Role=role["Role"]["Arn"],
        Handler="module.handler",
        Code={"ZipFile": held.getvalue()},
        **given,
    )


def test_a_platform_is_what_the_function_was_deployed_as(aws: None) -> None:
    deploy("us-east-1", Architectures=["arm64"])
    found = AwsPlatform.of("siafu", Place("us-east-1"), host="10.0.0.7")
    assert (found.function.memory_mb, found.function.timeout_seconds) == (512, 77.0)
    assert found.lifetime > 77
    assert found.prices == lambda_prices("us-east-1", "arm64")
    assert (found.host, found.listen, found.paid) == ("10.0.0.7", "0.0.0.0", True)
    assert found.where == "function siafu in us-east-1"


def test_the_region_may_come_from_the_environment(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy("us-east-1", "train")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert AwsPlatform.of("train", host="10.0.0.7").prices.region == "us-east-1"


def test_a_version_is_asked_for_by_its_qualifier(aws: None) -> None:
    deploy("us-east-1")
    where = {"place": Place("us-east-1"), "host": "10.0.0.7"}
    assert AwsPlatform.of("siafu", qualifier="$LATEST", **where).function.qualifier == "$LATEST"
    with pytest.raises(BadInput, match="siafu"):
        AwsPlatform.of("siafu", qualifier="7", **where)


def test_of_a_region_without_prices_those_of_another_are_taken_and_that_is_said(aws: None) -> None:
    deploy("eu-west-1")
    prices = AwsPlatform.of("siafu", Place("eu-west-1"), host="10.0.0.7").prices
    assert prices.usd_per_gb_second == lambda_prices("us-east-1", "x86_64").usd_per_gb_second
    assert prices.region == "us-east-1"
    assert "those of eu-west-1 are not in it" in prices.source


def test_a_function_that_is_not_there_is_one_line_that_says_what_to_do(aws: None) -> None:
    with pytest.raises(BadInput) as refused:
        AwsPlatform.of("ants", Place("eu-west-1"))
    assert "ants" in str(refused.value)
    assert "run `siafu lambda deploy`" in str(refused.value)
    assert "\n" not in str(refused.value)


class NoNetwork(socket.socket):
    """As on a machine that has no route to anywhere."""

    def connect(self, address: object) -> None:
        raise OSError("Network is unreachable")


class OneNetwork(NoNetwork):
    """As on a machine with an address in one network."""

    def connect(self, address: object) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return "10.1.2.3", 4567


def test_without_an_address_given_this_machines_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform.socket, "socket", OneNetwork)
    assert platform._own_address() == "10.1.2.3"


def test_a_machine_without_network_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform.socket, "socket", NoNetwork)
    with pytest.raises(BadInput, match="--lambda-host"):
        platform._own_address()


def test_local_lambdas_cost_what_they_would_on_aws_and_are_not_paid_for() -> None:
    found = LocalPlatform(Limits(timeout_seconds=30))
    assert found.prices == lambda_prices("us-east-1", "x86_64")
    assert not found.paid
    assert found.lifetime > 30


def test_where_invocations_are_run_twice_there_is_room_for_both() -> None:
    def slots(faults: FaultPlan | None) -> int:
        return LocalPlatform(faults=faults).invoker(3, warm=1)._slots  # type: ignore[attr-defined, no-any-return]

    assert slots(None) == slots(FaultPlan(0, kill=0.1)) == 3
    assert slots(FaultPlan(0, duplicate=0.1)) == 6

"""Deploying and taking away, against moto's AWS."""

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from siafu.base.errors import BadInput, SiafuError
from siafu.serverless.deployment.aws import Place, aws_errors
from siafu.serverless.deployment.deploy import left_alone, steps_away, steps_to
from siafu.serverless.deployment.deployment import TAG, Account, Deployment, permissions
from siafu.serverless.deployment.observed import Clients, observe
from siafu.serverless.deployment.package import LambdaTarget, Package
from siafu.serverless.deployment.steps import DeploymentStep, run
from siafu.serverless.function.handler_variables import handler_variables

moto = pytest.importorskip("moto", reason="moto is not installed: it stands in for AWS here")

_REGION = "eu-west-1"
_ANYTHING = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
_TRUST = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}'


@pytest.fixture
def clients() -> Iterator[Clients]:
    with moto.mock_aws():
        yield Clients(Place(_REGION))


@pytest.fixture
def subnet(clients: Clients) -> str:
    """A subnet of a VPC with two ranges of addresses."""
    vpc = clients["ec2"].create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    clients["ec2"].associate_vpc_cidr_block(VpcId=vpc, CidrBlock="10.1.0.0/16")
    found: str = clients["ec2"].create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    return found


def _zip(word: str = "one") -> Package:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(zipfile.ZipInfo("module.py"), word)
    return Package(held.getvalue(), len(word), ("a.whl",))


def _deploy(clients: Clients, deployment: Deployment, package: Package | None = None) -> list[str]:
    steps = steps_to(deployment, package or _zip(), observe(clients, deployment))
    run(steps, clients, lambda line: None, _never_sleeps)
    return [step.operation for step in steps]


def _teardown(clients: Clients, deployment: Deployment) -> list[str]:
    steps = steps_away(deployment, observe(clients, deployment))
    run(steps, clients, lambda line: None, _never_sleeps)
    return [step.operation for step in steps]


def _never_sleeps(seconds: float) -> None:
    raise AssertionError("nothing here needs to be waited for")


def _everything(clients: Clients) -> dict[str, Any]:
    """What the account has, by kind."""
    return {
        "functions": {each["FunctionName"] for each in clients["lambda"].list_functions()["Functions"]},
        "roles": {each["RoleName"] for each in clients["iam"].list_roles()["Roles"]},
        "logs": {each["logGroupName"] for each in clients["logs"].describe_log_groups()["logGroups"]},
        "groups": {each["GroupId"] for each in clients["ec2"].describe_security_groups()["SecurityGroups"]},
    }


@pytest.mark.slow
def test_everything_that_a_function_needs_is_made(clients: Clients) -> None:
    _deploy(
        clients,
        Deployment("ants", LambdaTarget("arm64"), memory_mb=3538, timeout_seconds=300, concurrency=50),
    )
    function = clients["lambda"].get_function(FunctionName="ants")
    told = function["Configuration"]
    assert (told["MemorySize"], told["Timeout"], told["Architectures"]) == (3538, 300, ["arm64"])
    assert (told["Handler"], told["Runtime"]) == ("siafu.serverless.function.handler.handler", "python3.12")
    assert told["Environment"]["Variables"] == handler_variables(3538)
    assert handler_variables(3538)["OPENBLAS_NUM_THREADS"] == "2"
    assert told["CodeSha256"] == _zip().digest
    assert function["Concurrency"]["ReservedConcurrentExecutions"] == 50
    assert function["Tags"] == {TAG: f"ants@{_REGION}"}
    group = clients["logs"].describe_log_groups(logGroupNamePrefix="/aws/lambda/ants")["logGroups"][0]
    assert group["retentionInDays"] == 14


@pytest.mark.parametrize("in_vpc", [False, True])
def test_doing_it_twice_changes_nothing_the_second_time(clients: Clients, subnet: str, in_vpc: bool) -> None:
    deployment = Deployment("ants", concurrency=5, subnets=(subnet,) if in_vpc else ())
    assert _deploy(clients, deployment)
    assert _deploy(clients, deployment) == []


@pytest.mark.slow
def test_only_what_differs_is_changed(clients: Clients) -> None:
    deployment = Deployment("ants")
    _deploy(clients, deployment)
    assert _deploy(clients, deployment, _zip("two")) == ["update_function_code"]
    larger = replace(deployment, memory_mb=2048)
    assert _deploy(clients, larger, _zip("two")) == ["update_function_configuration"]
    reserved = replace(larger, concurrency=7)
    assert _deploy(clients, reserved, _zip("two")) == ["put_function_concurrency"]
    assert _deploy(clients, larger, _zip("two")) == ["delete_function_concurrency"]
    assert _deploy(clients, replace(larger, log_days=30), _zip("two")) == ["put_retention_policy"]


def test_rights_that_somebody_widened_are_mended(clients: Clients) -> None:
    deployment = Deployment("ants")
    _deploy(clients, deployment)
    role = f"siafu-ants-{_REGION}"
    clients["iam"].put_role_policy(RoleName=role, PolicyName=role, PolicyDocument=_ANYTHING)
    clients["iam"].update_assume_role_policy(RoleName=role, PolicyDocument=_TRUST)
    assert _deploy(clients, deployment) == ["update_assume_role_policy", "put_role_policy"]
    assert _deploy(clients, deployment) == []


@pytest.mark.slow
def test_what_stopped_after_any_step_goes_on_from_there(clients: Clients, subnet: str) -> None:
    deployment = Deployment("ants", concurrency=3, subnets=(subnet,))
    wanted = [step.operation for step in steps_to(deployment, _zip(), observe(clients, deployment))]
    done = []
    while rest := steps_to(deployment, _zip(), observe(clients, deployment)):
        run(rest[:1], clients, lambda line: None, _never_sleeps)
        done.append(rest[0].operation)
    assert done == wanted


def test_a_function_may_write_its_own_log_and_nothing_else() -> None:
    rights = permissions(Deployment("ants"), Account("123456789012", _REGION))["Statement"]
    assert rights == [
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": f"arn:aws:logs:{_REGION}:123456789012:log-group:/aws/lambda/ants:*",
        }
    ]


def test_in_a_vpc_only_lambda_itself_may_use_the_rights_for_network_interfaces() -> None:
    rights = permissions(Deployment("ants", subnets=("subnet-1",)), Account("123456789012", _REGION))
    allowed, denied = rights["Statement"][1:]
    assert (allowed["Effect"], denied["Effect"]) == ("Allow", "Deny")
    assert allowed["Action"] == denied["Action"]
    function = f"arn:aws:lambda:{_REGION}:123456789012:function:ants"
    assert denied["Condition"] == {"ArnEquals": {"lambda:SourceFunctionArn": [function]}}


def test_a_new_security_group_lets_the_function_call_its_vpc_only(clients: Clients, subnet: str) -> None:
    _deploy(clients, Deployment("ants", subnets=(subnet,)))
    network = clients["lambda"].get_function(FunctionName="ants")["Configuration"]["VpcConfig"]
    assert network["SubnetIds"] == [subnet]
    groups = clients["ec2"].describe_security_groups(GroupIds=network["SecurityGroupIds"])["SecurityGroups"]
    assert len(groups) == 1
    assert groups[0]["IpPermissions"] == []
    (rule,) = groups[0]["IpPermissionsEgress"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 1024, 65535)
    assert {block["CidrIp"] for block in rule["IpRanges"]} == {"10.0.0.0/16", "10.1.0.0/16"}


def test_a_security_group_that_is_named_is_used_and_stays(clients: Clients, subnet: str) -> None:
    vpc = clients["ec2"].describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    mine = clients["ec2"].create_security_group(GroupName="mine", Description="mine", VpcId=vpc)["GroupId"]
    deployment = Deployment("ants", subnets=(subnet,), security_groups=(mine,))
    assert "create_security_group" not in _deploy(clients, deployment)
    network = clients["lambda"].get_function(FunctionName="ants")["Configuration"]["VpcConfig"]
    assert network["SecurityGroupIds"] == [mine]
    _teardown(clients, Deployment("ants"))
    assert mine in _everything(clients)["groups"]


def test_teardown_leaves_the_account_as_it_was(clients: Clients, subnet: str) -> None:
    _deploy(clients, Deployment("bees"))
    before = _everything(clients)
    _deploy(clients, Deployment("ants", subnets=(subnet,), concurrency=2))
    assert _everything(clients) != before
    assert _teardown(clients, Deployment("ants"))
    assert _everything(clients) == before
    assert _teardown(clients, Deployment("ants")) == []


def test_what_others_made_under_our_names_is_neither_taken_over_nor_removed(clients: Clients) -> None:
    clients["logs"].create_log_group(logGroupName="/aws/lambda/ants")
    clients["iam"].create_role(RoleName=f"siafu-ants-{_REGION}", AssumeRolePolicyDocument=_TRUST)
    before = _everything(clients)
    with pytest.raises(BadInput, match="was not made by `siafu lambda deploy`: choose another --name"):
        _deploy(clients, Deployment("ants"))
    assert _teardown(clients, Deployment("ants")) == []
    assert len(left_alone(Deployment("ants"), observe(clients, Deployment("ants")))) == 2
    assert _everything(clients) == before


@pytest.mark.slow
def test_the_same_name_in_another_region_is_another_deployment(clients: Clients) -> None:
    elsewhere = Clients(Place("us-east-1"))
    _deploy(clients, Deployment("ants"))
    _deploy(elsewhere, Deployment("ants"))
    _teardown(elsewhere, Deployment("ants"))
    assert _deploy(clients, Deployment("ants")) == []


def test_subnets_of_two_vpcs_are_refused(clients: Clients, subnet: str) -> None:
    vpc = clients["ec2"].create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    other = clients["ec2"].create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    with pytest.raises(BadInput, match="name subnets of one"):
        _deploy(clients, Deployment("ants", subnets=(subnet, other)))


def test_moving_to_another_vpc_asks_for_a_teardown(clients: Clients, subnet: str) -> None:
    _deploy(clients, Deployment("ants", subnets=(subnet,)))
    vpc = clients["ec2"].create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    other = clients["ec2"].create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    with pytest.raises(BadInput, match="run `siafu lambda teardown` first"):
        _deploy(clients, Deployment("ants", subnets=(other,)))


def test_a_subnet_that_is_not_there_is_one_line(clients: Clients) -> None:
    with pytest.raises(BadInput, match=r"subnet-0123.*check the options"):
        _deploy(clients, Deployment("ants", subnets=("subnet-0123",)))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "no spaces"}, "--name"),
        ({"memory_mb": 64}, "--memory"),
        ({"timeout_seconds": 901}, "--timeout"),
        ({"concurrency": 0}, "--concurrency"),
        ({"security_groups": ("sg-1",)}, "--security-group without --subnet"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        Deployment(**wrong)


class _NewRole:
    """A Lambda service that does not know a role yet when it is first asked."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def create_function(self, **arguments: object) -> dict[str, object]:
        from botocore.exceptions import ClientError

        if self.refusals:
            self.refusals -= 1
            told = {
                "Code": "InvalidParameterValueException",
                "Message": "The role cannot be assumed by Lambda.",
            }
            raise ClientError({"Error": told}, "CreateFunction")
        return {}


def test_a_role_that_is_not_known_yet_is_waited_for() -> None:
    slept: list[float] = []
    step = DeploymentStep("make the function", "lambda", "create_function", {"FunctionName": "ants"})
    run([step], {"lambda": _NewRole(3)}, lambda line: None, slept.append)  # type: ignore[arg-type]
    assert slept == [1.0, 2.0, 4.0]
    with pytest.raises(BadInput, match="cannot be assumed"):
        run([step], {"lambda": _NewRole(1000)}, lambda line: None, slept.append)  # type: ignore[arg-type]


def test_trouble_of_aws_itself_is_not_the_users_fault() -> None:
    from botocore.exceptions import ClientError

    answer = {"Error": {"Code": "ServiceException"}, "ResponseMetadata": {"HTTPStatusCode": 500}}
    with pytest.raises(SiafuError, match="try again") as failed, aws_errors("do it"):
        raise ClientError(answer, "Invoke")
    assert failed.value.exit_code == 1


def test_a_step_is_shown_with_its_policy_and_without_its_bytes(clients: Clients) -> None:
    deployment = Deployment("ants")
    steps = steps_to(deployment, _zip(), observe(clients, deployment))
    shown = "\n".join(line for step in steps for line in step.lines())
    assert '"Service": "lambda.amazonaws.com"' in shown
    assert f"({len(_zip().body):,} bytes, SHA-256 " in shown
    assert json.dumps("module.py") not in shown

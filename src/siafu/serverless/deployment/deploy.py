"""Deploying: the steps from what is there to what is wanted, and those that take all of it away again."""

from collections.abc import Iterator, Mapping
from typing import Any

from siafu.base.errors import BadInput
from siafu.serverless.deployment.deployment import (
    TAG,
    Account,
    Deployment,
    as_text,
    permissions,
    settings,
    trust,
)
from siafu.serverless.deployment.observed import Network, Observed, Thing
from siafu.serverless.deployment.package import Package
from siafu.serverless.deployment.steps import NEW_SECURITY_GROUP, DeploymentStep

_ANYWHERE: dict[str, Any] = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
_LOWEST_PORT = 1024  # servers listen on ports that need no privilege


def steps_to(deployment: Deployment, package: Package, there: Observed) -> list[DeploymentStep]:
    """Steps that make what is missing and change what differs, in order; [] if nothing does."""
    _refuse_to_take_over(deployment, there)
    return [
        *_role(deployment, there),
        *_log_group(deployment, there),
        *_security_group(deployment, there),
        *_function(deployment, package, there),
        *_concurrency(deployment, there),
    ]


def steps_away(deployment: Deployment, there: Observed) -> list[DeploymentStep]:
    """The removal of what we made; what others made is left alone, also where it has our names."""
    role = there.account.role(deployment)
    steps = []
    if _ours(there.function):
        steps.append(_step("remove the function", "lambda", "delete_function", FunctionName=deployment.name))
    if _ours(there.log_group):
        steps.append(_step("remove its logs", "logs", "delete_log_group", logGroupName=deployment.log_group))
    if there.role is not None and there.role.ours:
        if there.role.told["Policy"] is not None:
            steps.append(
                _step("remove its rights", "iam", "delete_role_policy", RoleName=role, PolicyName=role)
            )
        steps.append(_step("remove its role", "iam", "delete_role", RoleName=role))
    if there.security_group is not None:
        group = there.security_group.told["GroupId"]
        steps.append(_step("remove its security group", "ec2", "delete_security_group", GroupId=group))
    return steps


def left_alone(deployment: Deployment, there: Observed) -> list[str]:
    """Things with a name of ours that we did not make."""
    named = {
        f"function {deployment.name}": there.function,
        f"role {there.account.role(deployment)}": there.role,
        f"log group {deployment.log_group}": there.log_group,
    }
    return [name for name, thing in named.items() if thing is not None and not thing.ours]


def _refuse_to_take_over(deployment: Deployment, there: Observed) -> None:
    if strange := left_alone(deployment, there):
        raise BadInput(
            f"{strange[0]} is there already and was not made by `siafu lambda deploy`: choose another --name"
        )


def _role(deployment: Deployment, there: Observed) -> Iterator[DeploymentStep]:
    name = there.account.role(deployment)
    tags = [{"Key": TAG, "Value": there.account.tag(deployment)}]
    if there.role is None:
        yield _step(
            "make a role for the function",
            "iam",
            "create_role",
            RoleName=name,
            AssumeRolePolicyDocument=as_text(trust()),
            Description="What Siafu's Lambdas may do",
            Tags=tags,
        )
    elif there.role.told["AssumeRolePolicyDocument"] != trust():
        yield _step(
            "mend who may take the role",
            "iam",
            "update_assume_role_policy",
            RoleName=name,
            PolicyDocument=as_text(trust()),
        )
    wanted = permissions(deployment, there.account)
    if there.role is None or there.role.told["Policy"] != wanted:
        yield _step(
            "give the role its rights",
            "iam",
            "put_role_policy",
            RoleName=name,
            PolicyName=name,
            PolicyDocument=as_text(wanted),
        )


def _log_group(deployment: Deployment, there: Observed) -> Iterator[DeploymentStep]:
    name = deployment.log_group
    if there.log_group is None:
        tags = {TAG: there.account.tag(deployment)}
        yield _step("make a place for its logs", "logs", "create_log_group", logGroupName=name, tags=tags)
    if there.log_group is None or there.log_group.told.get("retentionInDays") != deployment.log_days:
        yield _step(
            f"keep its logs for {deployment.log_days} days",
            "logs",
            "put_retention_policy",
            logGroupName=name,
            retentionInDays=deployment.log_days,
        )


def _security_group(deployment: Deployment, there: Observed) -> Iterator[DeploymentStep]:
    if there.network is None:
        return
    rules = [_ANYWHERE]  # that AWS gives to a new group
    if there.security_group is None:
        yield _new_security_group(deployment, there.account, there.network)
    else:
        held = there.security_group.told["VpcId"]
        if held != there.network.vpc:
            raise BadInput(
                f"{deployment.name} was deployed in {held}, not {there.network.vpc}: "
                "run `siafu lambda teardown` first, or choose another --name"
            )
        rules = there.security_group.told["IpPermissionsEgress"]
    (group,) = _groups(deployment, there)
    if any(_includes(rule, _ANYWHERE) for rule in rules):
        yield _step(
            "take from it the right to call anywhere",
            "ec2",
            "revoke_security_group_egress",
            GroupId=group,
            IpPermissions=[_ANYWHERE],
        )
    ranges = [{"CidrIp": block} for block in there.network.ranges]
    servers = {"IpProtocol": "tcp", "FromPort": _LOWEST_PORT, "ToPort": 65535, "IpRanges": ranges}
    if not any(_includes(rule, servers) for rule in rules):
        yield _step(
            "let it call the servers of the VPC",
            "ec2",
            "authorize_security_group_egress",
            GroupId=group,
            IpPermissions=[servers],
        )


def _new_security_group(deployment: Deployment, account: Account, network: Network) -> DeploymentStep:
    tag = {"Key": TAG, "Value": account.tag(deployment)}
    arguments = {
        "GroupName": deployment.security_group,
        "Description": "Lambdas of Siafu: out to the servers of this VPC, nothing in",
        "VpcId": network.vpc,
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": [tag]}],
    }
    purpose = "make a security group that nobody can call"
    return DeploymentStep(purpose, "ec2", "create_security_group", arguments, keep="GroupId")


def _includes(rule: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a group's rule allows all that another does, in the same words."""
    same = all(rule.get(part) == other.get(part) for part in ("IpProtocol", "FromPort", "ToPort"))
    held = {block["CidrIp"] for block in rule.get("IpRanges", [])}
    return same and held >= {block["CidrIp"] for block in other["IpRanges"]}


def _function(deployment: Deployment, package: Package, there: Observed) -> Iterator[DeploymentStep]:
    wanted = settings(deployment, there.account, _groups(deployment, there))
    architectures = [deployment.target.architecture]
    if there.function is None:
        yield DeploymentStep(
            "make the function",
            "lambda",
            "create_function",
            {
                "FunctionName": deployment.name,
                "Code": {"ZipFile": package.body},
                "PackageType": "Zip",
                "Architectures": architectures,
                "Tags": {TAG: there.account.tag(deployment)},
                **wanted,
            },
            wait="function_active_v2",
        )
        return
    told = there.function.told
    # The configuration first: new code may need a newer Python, and old code is not called between the two.
    if not _is_set(told, wanted):
        yield DeploymentStep(
            "change the function's settings",
            "lambda",
            "update_function_configuration",
            {"FunctionName": deployment.name, **wanted},
            wait="function_updated_v2",
        )
    if told["CodeSha256"] != package.digest or told.get("Architectures", ["x86_64"]) != architectures:
        yield DeploymentStep(
            "give the function its code",
            "lambda",
            "update_function_code",
            {"FunctionName": deployment.name, "ZipFile": package.body, "Architectures": architectures},
            wait="function_updated_v2",
        )


def _concurrency(deployment: Deployment, there: Observed) -> Iterator[DeploymentStep]:
    held = None if there.function is None else there.function.told["Reserved"]
    if held == deployment.concurrency:
        return
    if deployment.concurrency is None:
        yield _step(
            "set no Lambdas aside for it",
            "lambda",
            "delete_function_concurrency",
            FunctionName=deployment.name,
        )
        return
    yield _step(
        f"set {deployment.concurrency} Lambdas aside for it",
        "lambda",
        "put_function_concurrency",
        FunctionName=deployment.name,
        ReservedConcurrentExecutions=deployment.concurrency,
    )


def _groups(deployment: Deployment, there: Observed) -> tuple[str, ...]:
    if not deployment.makes_security_group:
        return deployment.security_groups
    return (NEW_SECURITY_GROUP if there.security_group is None else there.security_group.told["GroupId"],)


def _is_set(told: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the function's settings are those; lists of a network's parts have no order."""
    network, asked = told.get("VpcConfig") or {}, wanted["VpcConfig"]
    if any(set(network.get(part, [])) != set(asked[part]) for part in asked):
        return False
    variables = (told.get("Environment") or {}).get("Variables", {})
    plain = wanted.keys() - {"VpcConfig", "Environment"}
    return bool(variables == wanted["Environment"]["Variables"]) and all(
        told.get(name) == wanted[name] for name in plain
    )


def _ours(thing: Thing | None) -> bool:
    return thing is not None and thing.ours


def _step(purpose: str, service: str, operation: str, **arguments: Any) -> DeploymentStep:
    return DeploymentStep(purpose, service, operation, arguments)

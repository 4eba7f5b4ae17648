"""A deployment: the function that is wanted, and everything on AWS that belongs to it, by name."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from siafu.base.errors import BadInput
from siafu.cost.lambda_prices import VCPU_MB
from siafu.serverless.deployment.package import HANDLER, LambdaTarget
from siafu.serverless.function.handler_variables import handler_variables

TAG = "siafu:deployment"  # on everything that we make, and on nothing else
_NETWORK_INTERFACES = [
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The function that the user wants.

    concurrency:     so many run at once at most, and are set aside for it; None: what the account has
    subnets:         of the VPC where the graph servers are; (): outside of any VPC
    security_groups: for its network interfaces; () with subnets: one is made that lets it call into its VPC only
    log_days:        how long its logs are kept
    """

    name: str = "siafu"
    target: LambdaTarget = field(default_factory=LambdaTarget)
    memory_mb: int = VCPU_MB
    timeout_seconds: int = 900
    concurrency: int | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    log_days: int = 14

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", self.name):
            raise BadInput(f"--name is {self.name!r}: use at most 32 letters, digits, - and _")
        if not 128 <= self.memory_mb <= 10_240:
            raise BadInput(f"--memory is {self.memory_mb}: AWS has Lambdas of 128 to 10240 MB")
        if not 1 <= self.timeout_seconds <= 900:
            raise BadInput(f"--timeout is {self.timeout_seconds}: AWS lets a Lambda run 1 to 900 seconds")
        if self.concurrency is not None and self.concurrency < 1:
            raise BadInput(f"--concurrency is {self.concurrency}: at least 1, or leave it out")
        if self.security_groups and not self.subnets:
            raise BadInput("--security-group without --subnet: name the subnets of the VPC as well")

    @property
    def log_group(self) -> str:
        return f"/aws/lambda/{self.name}"

    @property
    def security_group(self) -> str:
        """The one that we make when none is named."""
        return f"siafu-{self.name}"

    @property
    def makes_security_group(self) -> bool:
        return bool(self.subnets) and not self.security_groups

    def variables(self) -> dict[str, str]:
        """The environment of the handler."""
        return handler_variables(self.memory_mb)


@dataclass(frozen=True, slots=True)
class Account:
    """Whose credentials these are, and in which region."""

    number: str
    region: str
    partition: str = "aws"

    def arn(self, service: str, resource: str) -> str:
        """The name of something of this account, in this region unless it is of the whole account."""
        region = "" if service == "iam" else self.region
        return f"arn:{self.partition}:{service}:{region}:{self.number}:{resource}"

    def role(self, deployment: Deployment) -> str:
        """A role has no region: its name must tell."""
        return f"siafu-{deployment.name}-{self.region}"[:64]

    def tag(self, deployment: Deployment) -> str:
        """The tag's value: whose this is."""
        return f"{deployment.name}@{self.region}"


def trust() -> dict[str, Any]:
    """Only Lambda may take the role."""
    return _policy(
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    )


def permissions(deployment: Deployment, account: Account) -> dict[str, Any]:
    """The function's rights: to write its own log, and to have network interfaces if it is in a VPC. Nothing else."""
    logs = account.arn("logs", f"log-group:{deployment.log_group}:*")
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": logs}
    ]
    if deployment.subnets:
        function = account.arn("lambda", f"function:{deployment.name}")
        statements += [
            {"Effect": "Allow", "Action": _NETWORK_INTERFACES, "Resource": "*"},
            # Lambda needs these to set the function up; the code in it does not.
            {
                "Effect": "Deny",
                "Action": _NETWORK_INTERFACES,
                "Resource": "*",
                "Condition": {"ArnEquals": {"lambda:SourceFunctionArn": [function]}},
            },
        ]
    return _policy(*statements)


def settings(deployment: Deployment, account: Account, security_groups: tuple[str, ...]) -> dict[str, Any]:
    """The function's configuration, in the words of `CreateFunction` and `UpdateFunctionConfiguration`."""
    return {
        "Role": account.arn("iam", f"role/{account.role(deployment)}"),
        "Handler": HANDLER,
        "Runtime": f"python{deployment.target.python}",
        "MemorySize": deployment.memory_mb,
        "Timeout": deployment.timeout_seconds,
        "Environment": {"Variables": deployment.variables()},
        "VpcConfig": {"SubnetIds": list(deployment.subnets), "SecurityGroupIds": list(security_groups)},
        "Description": "Siafu: tensor tasks of graph neural networks",
    }


def as_text(policy: dict[str, Any]) -> str:
    """A policy as AWS takes it."""
    return json.dumps(policy, separators=(",", ":"))


def _policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}

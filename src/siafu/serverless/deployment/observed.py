"""Observed: things on AWS that have a deployment's names."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from siafu.base.errors import BadInput
from siafu.serverless.deployment.aws import Place, aws_errors, error_code
from siafu.serverless.deployment.deployment import TAG, Account, Deployment

_MISSING = {"ResourceNotFoundException", "NoSuchEntity"}
_NOT_FOR_YOU = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing on AWS: its description, and whether we made it."""

    told: dict[str, Any]
    ours: bool


@dataclass(frozen=True, slots=True)
class Network:
    """The VPC of the subnets, and the address ranges in it."""

    vpc: str
    ranges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """The account, and what is there; None: it is not.

    function: its `Configuration`, with `Reserved` for its concurrency
    role:     the `Role`, with `Policy` for our policy in it
    """

    account: Account
    function: Thing | None
    role: Thing | None
    log_group: Thing | None
    security_group: Thing | None
    network: Network | None


class Clients:
    """The services' clients, made when first used."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._made: dict[str, Any] = {}

    def __getitem__(self, service: str) -> Any:
        if service not in self._made:
            self._made[service] = self._place.client(service, retries={"mode": "standard"})
        return self._made[service]


def observe(clients: Clients, deployment: Deployment) -> Observed:
    """Look at everything that a deployment has a name for. Changes nothing."""
    account = who(clients)
    mine = account.tag(deployment)
    with aws_errors(f"tell of {deployment.name}"):
        network = _network(clients, deployment)
        return Observed(
            account,
            _function(clients, deployment, mine),
            _role(clients, account.role(deployment), mine),
            _log_group(clients, deployment, account, mine),
            _security_group(clients, deployment, mine),
            network,
        )


def who(clients: Clients) -> Account:
    """Whose credentials these are. The first call: bad ones are found here."""
    with aws_errors("tell whose credentials these are"):
        region = clients["lambda"].meta.region_name  # without one there is no client
        caller = clients["sts"].get_caller_identity()
    return Account(str(caller["Account"]), str(region), str(caller["Arn"]).split(":")[1])


def _if_there(ask: Callable[[], Any], missing: Set[str] = _MISSING) -> Any:
    from botocore.exceptions import ClientError

    try:
        return ask()
    except ClientError as error:
        if error_code(error) in missing:
            return None
        raise


def _function(clients: Clients, deployment: Deployment, mine: str) -> Thing | None:
    found = _if_there(lambda: clients["lambda"].get_function(FunctionName=deployment.name))
    if found is None:
        return None
    reserved = found.get("Concurrency", {}).get("ReservedConcurrentExecutions")
    return Thing({**found["Configuration"], "Reserved": reserved}, found.get("Tags", {}).get(TAG) == mine)


def _role(clients: Clients, name: str, mine: str) -> Thing | None:
    found = _if_there(lambda: clients["iam"].get_role(RoleName=name))
    if found is None:
        return None
    policy = _if_there(lambda: clients["iam"].get_role_policy(RoleName=name, PolicyName=name))
    told = {**found["Role"], "Policy": None if policy is None else policy["PolicyDocument"]}
    return Thing(told, {TAG: mine}.items() <= _plain(found["Role"].get("Tags", [])).items())


def _log_group(clients: Clients, deployment: Deployment, account: Account, mine: str) -> Thing | None:
    groups = clients["logs"].describe_log_groups(logGroupNamePrefix=deployment.log_group)["logGroups"]
    found = next((group for group in groups if group["logGroupName"] == deployment.log_group), None)
    if found is None:
        return None
    arn = account.arn("logs", f"log-group:{deployment.log_group}")
    tags = clients["logs"].list_tags_for_resource(resourceArn=arn)["tags"]
    return Thing(found, tags.get(TAG) == mine)


def _security_group(clients: Clients, deployment: Deployment, mine: str) -> Thing | None:
    """Ours, in whatever VPC. Who uses none need not have the right to look: he cannot have made one."""
    filters = [{"Name": f"tag:{TAG}", "Values": [mine]}]
    found = _if_there(
        lambda: clients["ec2"].describe_security_groups(Filters=filters)["SecurityGroups"],
        _MISSING if deployment.subnets else _NOT_FOR_YOU,
    )
    return Thing(found[0], True) if found else None


def _network(clients: Clients, deployment: Deployment) -> Network | None:
    if not deployment.makes_security_group:
        return None
    subnets = clients["ec2"].describe_subnets(SubnetIds=list(deployment.subnets))["Subnets"]
    vpcs = sorted({subnet["VpcId"] for subnet in subnets})
    if len(vpcs) != 1:
        raise BadInput(f"the subnets are of several VPCs ({', '.join(vpcs)}): name subnets of one")
    vpc = clients["ec2"].describe_vpcs(VpcIds=vpcs)["Vpcs"][0]
    blocks = [block["CidrBlock"] for block in vpc.get("CidrBlockAssociationSet", [])]
    return Network(vpcs[0], tuple(sorted({vpc["CidrBlock"], *blocks})))


def _plain(tags: list[dict[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}

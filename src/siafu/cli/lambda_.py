"""`siafu lambda`: the function on AWS that runs tensor tasks."""

import json
import queue
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from siafu.base.errors import SiafuError
from siafu.base.option import option
from siafu.base.storage.documents import read_object
from siafu.base.storage.owned import OwnedDirectory
from siafu.cli.common import say, show
from siafu.cli.declared import add_commands, json_flag

if TYPE_CHECKING:
    from siafu.serverless.deployment.aws import Place
    from siafu.serverless.deployment.observed import Clients
    from siafu.serverless.deployment.package import LambdaTarget, Package
    from siafu.serverless.deployment.steps import DeploymentStep
    from siafu.serverless.platforms.invoker import Invocation, InvocationOutcome

_TOLD = {"state": "State", "changed": "LastModified", "runtime": "Runtime", "memory_mb": "MemorySize"}
_TOLD |= {
    "timeout_seconds": "Timeout",
    "concurrency": "Reserved",
    "zip_bytes": "CodeSize",
    "sha256": "CodeSha256",
}

app = typer.Typer(help="Deploy, look at and remove the function that runs on AWS.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class FunctionOptions:
    """The function on AWS that a command is about."""

    name: str = option("siafu", "The function's name.")
    region: str | None = option(None, "AWS's region.", unset="as AWS's own tools are set up")
    profile: str | None = option(None, "A profile of AWS's own tools.")
    endpoint: str | None = option(None, "What speaks AWS's protocol in its place.", metavar="URL")

    def place(self) -> "Place":
        from siafu.serverless.deployment.aws import Place

        return Place(self.region, self.profile, self.endpoint)

    def clients(self) -> "Clients":
        from siafu.serverless.deployment.observed import Clients

        return Clients(self.place())


_dry_run = partial(option, False, "Show every call that would be made; make none.")


def deploy(
    at: FunctionOptions,
    memory: int = option(1769, "128 to 10240; 1769 MB are one vCPU.", metavar="MB"),
    timeout: int = option(900, "1 to 900.", metavar="SECONDS"),
    concurrency: int | None = option(None, "Lambdas set aside for it.", unset="what the account has"),
    architecture: str = option("x86_64", "x86_64 or arm64."),
    python: str = option("3.12", "The Lambda's Python."),
    subnet: list[str] | None = option(None, "A subnet of the graph servers' VPC; may be repeated."),
    security_group: list[str] | None = option(
        None, "For the Lambdas in the VPC; may be repeated.", unset="a new one"
    ),
    wheels: Path | None = option(None, "A directory with the wheels of NumPy and pyzmq.", unset="pip's"),
    dry_run: bool = _dry_run(),
    as_json: bool = json_flag(),
) -> None:
    """Make the function, its role, its logs and, in a VPC, its security group; or bring them up to date.

    Doing it twice changes nothing the second time. What was not made by it is never touched.
    """
    from siafu.serverless.deployment.deploy import steps_to
    from siafu.serverless.deployment.deployment import Deployment
    from siafu.serverless.deployment.observed import observe
    from siafu.serverless.deployment.package import LambdaTarget

    target, subnets, groups = (
        LambdaTarget(architecture, python),
        tuple(subnet or ()),
        tuple(security_group or ()),
    )
    deployment = Deployment(at.name, target, memory, timeout, concurrency, subnets, groups)
    clients = at.clients()
    there = observe(clients, deployment)
    package = _package(deployment.target, wheels)
    say(
        f"package: {len(package.body) / 1e6:.1f} MB, {package.unpacked_bytes / 1e6:.1f} MB unpacked: "
        f"{', '.join(package.contents)} and the handler"
    )
    steps = steps_to(deployment, package, there)
    _do(steps, clients, dry_run)
    function = there.account.arn("lambda", f"function:{at.name}")
    if not dry_run:
        say(f"{function} is {'deployed' if steps else 'as it should be already'}")
    if as_json:
        sizes = {"zip_bytes": len(package.body), "unpacked_bytes": package.unpacked_bytes}
        print(
            json.dumps({"function": function, **_changes(steps, dry_run), **sizes, "sha256": package.digest})
        )


def status(at: FunctionOptions, as_json: bool = json_flag()) -> None:
    """Show what is deployed."""
    from siafu.serverless.deployment.deployment import Deployment
    from siafu.serverless.deployment.observed import observe

    there = observe(at.clients(), Deployment(at.name))
    told = {} if there.function is None else there.function.told
    network = told.get("VpcConfig") or {}
    found = {
        "function": at.name,
        "account": there.account.number,
        "region": there.account.region,
        "deployed": there.function is not None,
        "by_siafu": there.function is not None and there.function.ours,
        **{name: told.get(theirs) for name, theirs in _TOLD.items()},
        "architecture": (told.get("Architectures") or [None])[0],
        "subnets": network.get("SubnetIds", []),
        "security_groups": network.get("SecurityGroupIds", []),
        "role": there.role is not None,
        "log_group": there.log_group is not None,
    }
    lines = [
        f"{key.replace('_', ' '):16} {', '.join(value) if isinstance(value, list) else value}"
        for key, value in found.items()
        if value not in (None, [])
    ]
    show(found, lines, as_json=as_json)


def invoke(
    at: FunctionOptions,
    payload: Path | None = option(None, "A JSON file to send.", unset="a probe that finds no work"),
    qualifier: str | None = option(None, "A version or alias."),
    count: int = option(1, "So many at once.", least=1, most=1000),
    as_json: bool = json_flag(),
) -> None:
    """Call the function and show what came back, how long it took and what is billed."""
    from siafu.serverless.platforms.aws_invoker import AwsInvoker, DeployedFunction

    invocations = [_invocation(payload, number) for number in range(count)]
    function = DeployedFunction(at.name, at.place(), qualifier)
    invoker = AwsInvoker(function, most=count, may_check=at.endpoint is None)
    invoker.start()
    ended: queue.Queue[tuple[float, InvocationOutcome]] = queue.Queue()
    began = time.perf_counter()
    for invocation in invocations:
        invoker.invoke(invocation, lambda outcome: ended.put((time.perf_counter() - began, outcome)))
    outcomes = [_outcome_form(*ended.get()) for _ in invocations]
    invoker.stop()
    for outcome in outcomes:
        told = outcome["failure"] or json.dumps(outcome["receipt"])
        say(f"{1000 * outcome['seconds']:.0f} ms, billed {outcome['billed_ms']} ms: {told}")
    if as_json:
        print(json.dumps({"function": at.name, "invocations": outcomes}))
    if failed := [outcome["failure"] for outcome in outcomes if outcome["failure"]]:
        raise SiafuError(f"{len(failed)} of {count} invocations failed: {failed[0]}")


def logs(at: FunctionOptions, minutes: float = option(10.0, "How far back.", least=0)) -> None:
    """Print what the function logged."""
    from siafu.serverless.deployment.aws import aws_errors
    from siafu.serverless.deployment.deployment import Deployment

    pages = at.clients()["logs"].get_paginator("filter_log_events")
    since = int((time.time() - 60 * minutes) * 1000)
    with aws_errors(f"give the logs of {at.name}"):
        for page in pages.paginate(logGroupName=Deployment(at.name).log_group, startTime=since):
            for event in page["events"]:
                moment = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
                print(moment.strftime("%Y-%m-%d %H:%M:%S"), event["message"].rstrip())


def teardown(at: FunctionOptions, dry_run: bool = _dry_run(), as_json: bool = json_flag()) -> None:
    """Remove what deploy made, and nothing else."""
    from siafu.serverless.deployment.deploy import left_alone, steps_away
    from siafu.serverless.deployment.deployment import Deployment
    from siafu.serverless.deployment.observed import observe

    deployment, clients = Deployment(at.name), at.clients()
    there = observe(clients, deployment)
    for strange in left_alone(deployment, there):
        say(f"{strange} was not made by siafu: left alone")
    steps = steps_away(deployment, there)
    _do(steps, clients, dry_run)
    if not steps:
        say(f"nothing of {at.name} is in {there.account.region}")
    if as_json:
        print(json.dumps(_changes(steps, dry_run)))


def _changes(steps: "list[DeploymentStep]", dry_run: bool) -> dict[str, Any]:
    return {"changes": [f"{step.service}.{step.operation}" for step in steps], "dry_run": dry_run}


def _package(target: "LambdaTarget", wheels: Path | None) -> "Package":
    from siafu.serverless.deployment.package import build, fetch_wheels, find_wheels

    if wheels is not None:
        return build(find_wheels(wheels, target))
    with OwnedDirectory() as directory:
        return build(fetch_wheels(target, directory))


def _do(steps: "list[DeploymentStep]", clients: "Clients", dry_run: bool) -> None:
    from siafu.serverless.deployment.steps import run

    if not dry_run:
        run(steps, clients, say)
        return
    for step in steps:
        print("\n".join(step.lines()))
    if not steps:
        print("nothing to do")


def _invocation(payload: Path | None, number: int) -> "Invocation":
    from siafu.serverless.control.ids import InvocationId
    from siafu.serverless.function.probe import probe
    from siafu.serverless.platforms.invoker import Invocation

    if payload is None:
        return probe(number)
    given = read_object(payload, "give a file with one JSON object")
    return Invocation(InvocationId(number), given)


def _outcome_form(seconds: float, outcome: "InvocationOutcome") -> dict[str, Any]:
    from siafu.serverless.platforms.invoker import InvocationFailed

    return {
        "seconds": seconds,
        **asdict(outcome.usage),
        "receipt": None if isinstance(outcome, InvocationFailed) else outcome.receipt,
        "failure": str(outcome.failure) if isinstance(outcome, InvocationFailed) else None,
    }


add_commands(app, deploy, status, invoke, logs, teardown)

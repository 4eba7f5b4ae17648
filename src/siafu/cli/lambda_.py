"""`siafu lambda`: the function on AWS that runs tensor tasks."""

import json
import queue
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siafu.base.documents import parse_json
from siafu.base.errors import BadInput, SiafuError
from siafu.base.owned import OwnedDirectory

if TYPE_CHECKING:
    from siafu.serverless.deployment.aws import Place
    from siafu.serverless.deployment.observed import Clients
    from siafu.serverless.deployment.package import Package, Target
    from siafu.serverless.deployment.steps import Step
    from siafu.serverless.platforms.invoker import Invocation, Outcome

app = typer.Typer(help="Deploy, look at and remove the function that runs on AWS.", no_args_is_help=True)

Name = Annotated[str, typer.Option(help="The function's name.")]
Region = Annotated[str | None, typer.Option(help="AWS's region. [default: as AWS's own tools are set up]")]
Profile = Annotated[str | None, typer.Option(help="A profile of AWS's own tools.")]
Endpoint = Annotated[str | None, typer.Option(metavar="URL", help="What speaks AWS's protocol in its place.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show every call that would be made; make none.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


@app.command("deploy")
def deploy(
    name: Name = "siafu",
    memory: Annotated[int, typer.Option(metavar="MB", help="128 to 10240; 1769 MB are one vCPU.")] = 1769,
    timeout: Annotated[int, typer.Option(metavar="SECONDS", help="1 to 900.")] = 900,
    concurrency: Annotated[
        int | None, typer.Option(help="Lambdas set aside for it. [default: what the account has]")
    ] = None,
    architecture: Annotated[str, typer.Option(help="x86_64 or arm64.")] = "x86_64",
    python: Annotated[str, typer.Option(help="The Lambda's Python.")] = "3.12",
    subnet: Annotated[
        list[str] | None, typer.Option(help="A subnet of the graph servers' VPC; may be repeated.")
    ] = None,
    security_group: Annotated[
        list[str] | None,
        typer.Option(help="For the Lambdas in the VPC; may be repeated. [default: a new one]"),
    ] = None,
    wheels: Annotated[
        Path | None, typer.Option(help="A directory with the wheels of NumPy and pyzmq. [default: pip's]")
    ] = None,
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make the function, its role, its logs and, in a VPC, its security group; or bring them up to date.

    Doing it twice changes nothing the second time. What was not made by it is never touched.
    """
    from siafu.serverless.deployment.deploy import steps_to
    from siafu.serverless.deployment.deployment import Deployment
    from siafu.serverless.deployment.observed import observe
    from siafu.serverless.deployment.package import Target

    deployment = Deployment(
        name,
        Target(architecture, python),
        memory,
        timeout,
        concurrency,
        tuple(subnet or ()),
        tuple(security_group or ()),
    )
    clients = _clients(_place(region, profile, endpoint))
    there = observe(clients, deployment)
    package = _package(deployment.target, wheels)
    _say(
        f"package: {len(package.body) / 1e6:.1f} MB, {package.unpacked_bytes / 1e6:.1f} MB unpacked: "
        f"{', '.join(package.contents)} and the handler"
    )
    steps = steps_to(deployment, package, there)
    _do(steps, clients, dry_run)
    function = there.account.arn("lambda", f"function:{name}")
    if not dry_run:
        _say(f"{function} is {'deployed' if steps else 'as it should be already'}")
    _json(
        as_json,
        {
            "function": function,
            "changes": [f"{step.service}.{step.operation}" for step in steps],
            "dry_run": dry_run,
            "zip_bytes": len(package.body),
            "unpacked_bytes": package.unpacked_bytes,
            "sha256": package.digest,
        },
    )


@app.command("status")
def status(
    name: Name = "siafu",
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
) -> None:
    """Show what is deployed."""
    from siafu.serverless.deployment.deployment import Deployment
    from siafu.serverless.deployment.observed import observe

    there = observe(_clients(_place(region, profile, endpoint)), Deployment(name))
    told = {} if there.function is None else there.function.told
    network = told.get("VpcConfig") or {}
    found = {
        "function": name,
        "account": there.account.number,
        "region": there.account.region,
        "deployed": there.function is not None,
        "by_siafu": there.function is not None and there.function.ours,
        "state": told.get("State"),
        "changed": told.get("LastModified"),
        "runtime": told.get("Runtime"),
        "architecture": (told.get("Architectures") or [None])[0],
        "memory_mb": told.get("MemorySize"),
        "timeout_seconds": told.get("Timeout"),
        "concurrency": told.get("Reserved"),
        "zip_bytes": told.get("CodeSize"),
        "sha256": told.get("CodeSha256"),
        "subnets": network.get("SubnetIds", []),
        "security_groups": network.get("SecurityGroupIds", []),
        "role": there.role is not None,
        "log_group": there.log_group is not None,
    }
    if as_json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        if value not in (None, []):
            print(f"{key.replace('_', ' '):16} {', '.join(value) if isinstance(value, list) else value}")


@app.command("invoke")
def invoke(
    name: Name = "siafu",
    payload: Annotated[
        Path | None, typer.Option(help="A JSON file to send. [default: a probe that finds no work]")
    ] = None,
    qualifier: Annotated[str | None, typer.Option(help="A version or alias.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="So many at once.")] = 1,
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
) -> None:
    """Call the function and show what came back, how long it took and what is billed."""
    from siafu.serverless.platforms.aws_invoker import AwsInvoker, DeployedFunction

    invocations = [_invocation(payload, number) for number in range(count)]
    function = DeployedFunction(name, _place(region, profile, endpoint), qualifier)
    invoker = AwsInvoker(function, most=count, may_check=endpoint is None)
    invoker.start()
    ended: queue.Queue[tuple[float, Outcome]] = queue.Queue()
    began = time.perf_counter()
    for invocation in invocations:
        invoker.invoke(invocation, lambda outcome: ended.put((time.perf_counter() - began, outcome)))
    outcomes = [_outcome_form(*ended.get()) for _ in invocations]
    invoker.stop()
    for outcome in outcomes:
        told = outcome["failure"] or json.dumps(outcome["receipt"])
        _say(f"{1000 * outcome['seconds']:.0f} ms, billed {outcome['billed_ms']} ms: {told}")
    _json(as_json, {"function": name, "invocations": outcomes})
    if failed := [outcome["failure"] for outcome in outcomes if outcome["failure"]]:
        raise SiafuError(f"{len(failed)} of {count} invocations failed: {failed[0]}")


@app.command("logs")
def logs(
    name: Name = "siafu",
    minutes: Annotated[float, typer.Option(min=0, help="How far back.")] = 10.0,
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
) -> None:
    """Print what the function logged."""
    from siafu.serverless.deployment.aws import aws_errors
    from siafu.serverless.deployment.deployment import Deployment

    clients = _clients(_place(region, profile, endpoint))
    group = Deployment(name).log_group
    since = int((time.time() - 60 * minutes) * 1000)
    with aws_errors(f"give the logs of {name}"):
        pages = (
            clients["logs"].get_paginator("filter_log_events").paginate(logGroupName=group, startTime=since)
        )
        for page in pages:
            for event in page["events"]:
                at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
                print(at, event["message"].rstrip())


@app.command("teardown")
def teardown(
    name: Name = "siafu",
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove what deploy made, and nothing else."""
    from siafu.serverless.deployment.deploy import left_alone, steps_away
    from siafu.serverless.deployment.deployment import Deployment
    from siafu.serverless.deployment.observed import observe

    deployment = Deployment(name)
    clients = _clients(_place(region, profile, endpoint))
    there = observe(clients, deployment)
    for strange in left_alone(deployment, there):
        _say(f"{strange} was not made by siafu: left alone")
    steps = steps_away(deployment, there)
    _do(steps, clients, dry_run)
    if not steps:
        _say(f"nothing of {name} is in {there.account.region}")
    _json(as_json, {"changes": [f"{step.service}.{step.operation}" for step in steps], "dry_run": dry_run})


def _place(region: str | None, profile: str | None, endpoint: str | None) -> "Place":
    from siafu.serverless.deployment.aws import Place

    return Place(region, profile, endpoint)


def _clients(place: "Place") -> "Clients":
    from siafu.serverless.deployment.observed import Clients

    return Clients(place)


def _package(target: "Target", wheels: Path | None) -> "Package":
    from siafu.serverless.deployment.package import build, fetch_wheels, find_wheels

    if wheels is not None:
        return build(find_wheels(wheels, target))
    with OwnedDirectory() as directory:
        return build(fetch_wheels(target, directory))


def _do(steps: "list[Step]", clients: "Clients", dry_run: bool) -> None:
    from siafu.serverless.deployment.steps import run

    if not dry_run:
        run(steps, clients, _say)
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
    try:
        given = parse_json(payload.read_bytes())
    except OSError as error:
        raise BadInput(
            f"cannot read {payload} ({error.strerror}): give a file with one JSON object"
        ) from error
    except ValueError as error:
        raise BadInput(f"{payload} is not JSON ({error}): give a file with one JSON object") from error
    if not isinstance(given, dict):
        raise BadInput(f"{payload} has no JSON object: give a file with one")
    return Invocation(InvocationId(number), given)


def _outcome_form(seconds: float, outcome: "Outcome") -> dict[str, Any]:
    from siafu.serverless.platforms.invoker import Failed

    return {
        "seconds": seconds,
        "billed_ms": outcome.usage.billed_ms,
        "memory_mb": outcome.usage.memory_mb,
        "init_ms": outcome.usage.init_ms,
        "receipt": None if isinstance(outcome, Failed) else outcome.receipt,
        "failure": str(outcome.failure) if isinstance(outcome, Failed) else None,
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _json(wanted: bool, told: dict[str, Any]) -> None:
    if wanted:
        print(json.dumps(told))

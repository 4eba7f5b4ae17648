"""`siafu cluster`: machines to train on, started, looked at and ended."""

import getpass
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siafu.base.errors import BadInput
from siafu.base.version import __version__

if TYPE_CHECKING:
    from siafu.launch.record import Record
    from siafu.launch.template import AwsWanted, HostsWanted

app = typer.Typer(help="Start, look at and end a cluster of machines to train on.", no_args_is_help=True)

Name = Annotated[str, typer.Option(help="The cluster's name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]

_INSTANCE = "m6i.2xlarge"
_MACHINES = 3
_OF_HOSTS = ("hosts",)
_OF_AWS = ("instance", "region", "image", "disk")
_OF_ALL_BUT_LOCAL = ("user", "key", "wheel")


@app.command("up")
def up(
    on: Annotated[
        str,
        typer.Option(
            help="local: nodes on this machine; ssh: machines that are there; aws; aws-spot: all but the head on spot."
        ),
    ],
    hosts: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="ssh: the machines; the first is the head.")
    ] = None,
    machines: Annotated[
        int | None, typer.Option(help="How many, the head included (local, aws). [default: 3]")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="local: the address to listen at. [default: 127.0.0.1]"),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Who ssh logs in as. [default: you; aws: ubuntu]")] = None,
    key: Annotated[
        Path | None, typer.Option(help="The private key for ssh. [default: as ssh is set up; aws: Ray's]")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(help=f"aws: the type of the machines. [default: {_INSTANCE}]")
    ] = None,
    region: Annotated[str | None, typer.Option(help="aws: the region. [default: AWS_REGION]")] = None,
    image: Annotated[
        str | None, typer.Option(help="aws: the machines' image. [default: the latest of Ubuntu 24.04]")
    ] = None,
    disk: Annotated[int | None, typer.Option(min=8, help="aws: GB of each machine. [default: 100]")] = None,
    wheel: Annotated[
        Path | None, typer.Option(help="A wheel of siafu to install there. [default: this version, by pip]")
    ] = None,
    name: Name = "siafu",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be started; start nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start a cluster, and say how to train on it."""
    from siafu.launch import record as records
    from siafu.launch.template import KINDS, check_name

    if on not in KINDS:
        raise BadInput(f"--on is {on!r}: choose one of {', '.join(KINDS)}")
    check_name(name)
    given = {"hosts": hosts, "machines": machines, "user": user, "key": key, "instance": instance}
    given |= {"region": region, "image": image, "disk": disk, "wheel": wheel, "host": host}
    _refuse_what_does_not_fit(on, given)
    if on == "local":
        many = _MACHINES if machines is None else machines
        _up_here(name, many, host, dry_run=dry_run, as_json=as_json)
        return
    wanted = _wanted(on, name, given)
    if dry_run:
        print(wanted.yaml(), end="")
        return
    if records.find(name) is not None:
        raise _is_there(name)
    from siafu.launch import remote

    _started(remote.up(wanted), as_json)


@app.command("status")
def status(
    name: Name = "siafu",
    cluster: Annotated[
        str | None,
        typer.Option(metavar="auto|ADDRESS", help="Any Ray cluster that this machine is part of, instead."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a cluster's machines, their cores and memory, and the runs on it."""
    from siafu.launch import local, remote
    from siafu.launch import record as records
    from siafu.launch.look import look

    if cluster is not None:
        told = asdict(look(cluster))
    else:
        record = records.get(name)
        if record.kind != "local":
            told = remote.look_there(record)
        elif not local.runs(record):
            raise BadInput(
                f"cluster {name!r} has ended, or some of its nodes have: 'siafu cluster down --name {name}' clears it away"
            )
        else:
            assert record.address is not None
            told = asdict(look(record.address))
        told = {"name": name, "kind": record.kind, **told}
    if as_json:
        print(json.dumps(told))
        return
    for line in _lines(told):
        print(line)


@app.command("down")
def down(name: Name = "siafu", as_json: Json = False) -> None:
    """End what `up` started, and nothing else."""
    from siafu.launch import local, remote
    from siafu.launch import record as records

    record = records.get(name)
    if record.kind == "local":
        local.down(record)
    else:
        remote.down(record)
    _say(f"cluster {name!r} is down")
    if as_json:
        print(json.dumps({"name": name, "kind": record.kind, "machines": record.machines}))


def _refuse_what_does_not_fit(on: str, given: dict[str, Any]) -> None:
    fitting = {
        "local": ("machines", "host"),
        "ssh": (*_OF_HOSTS, *_OF_ALL_BUT_LOCAL),
        "aws": ("machines", *_OF_AWS, *_OF_ALL_BUT_LOCAL),
    }[on.removesuffix("-spot")]
    for option, value in given.items():
        if value is not None and option not in fitting:
            said = ", ".join(f"--{each}" for each in fitting)
            raise BadInput(f"--{option} says nothing of a cluster --on {on}: leave it out; there are {said}")


def _wanted(on: str, name: str, given: dict[str, Any]) -> "HostsWanted | AwsWanted":
    from siafu.launch.template import AwsWanted, HostsWanted

    key, wheel = given["key"], given["wheel"]
    if on == "ssh":
        hosts = tuple(filter(None, (given["hosts"] or "").split(",")))
        return HostsWanted(name, hosts, given["user"] or getpass.getuser(), __version__, key, wheel)
    region = given["region"] or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        raise BadInput("no region is given: name a region with --region, like eu-central-1")
    return AwsWanted(
        name,
        on,
        _MACHINES if given["machines"] is None else given["machines"],
        given["instance"] or _INSTANCE,
        region,
        __version__,
        given["user"] or "ubuntu",
        given["image"],
        given["disk"] or 100,
        key,
        wheel,
    )


def _up_here(name: str, machines: int, host: str | None, *, dry_run: bool, as_json: bool) -> None:
    from siafu.launch import local
    from siafu.launch import record as records
    from siafu.launch.loopback import LOOPBACK

    host = host or LOOPBACK
    if dry_run:
        for command in local.commands(name, machines, 6379, f"/tmp/siafu-ray-{name}", host):
            print(shlex.join(["ray", *command]))
        return
    found = records.find(name)
    if found is not None and (found.kind != "local" or local.runs(found)):
        raise _is_there(name)
    if found is not None:
        local.down(found)  # what is left of one whose processes have ended
    _started(local.up(name, machines, _say, host), as_json)


def _is_there(name: str) -> BadInput:
    return BadInput(
        f"cluster {name!r} is up already: use it, end it with 'siafu cluster down --name {name}', or choose another --name"
    )


def _started(record: "Record", as_json: bool) -> None:
    _say(
        f"cluster {record.name!r} is up: {record.machines} {'nodes' if record.kind == 'local' else 'machines'}"
    )
    _say(f"next: {_next(record)}")
    if as_json:
        told = {"name": record.name, "kind": record.kind, "machines": record.machines, "head": record.head}
        print(json.dumps(told | {"address": record.address, "next": _next(record)}))


def _next(record: "Record") -> str:
    """The command that trains on it."""
    from siafu.launch import local, remote

    if record.kind == "local":
        where = "auto" if local.is_only_ray() else record.address
        return f"siafu train STORE --cluster {where} --servers {record.machines}"
    train = f"{remote.SIAFU} train STORE --cluster auto --servers {record.machines}"
    return f"ssh {record.user}@{record.head} {train}"


def _lines(told: dict[str, Any]) -> list[str]:
    machines, runs = told["machines"], told["runs"]
    cores = sum(each["cores"] for each in machines)
    # Nodes of one machine each tell of all its memory.
    memory = sum({each["address"]: each["memory_bytes"] for each in machines}.values())
    kind = f"{told['name']} ({told['kind']}), " if "name" in told else ""
    lines = [
        f"{kind}{told['address']}: {len(machines)} nodes, {cores} cores, {told['cores_free']} free, {memory / 1e9:.1f} GB"
    ]
    for each in machines:
        head = ", head" if each["head"] else ""
        lines.append(f"  {each['address']}: {each['cores']} cores, {each['memory_bytes'] / 1e9:.1f} GB{head}")
    if not runs:
        lines.append("no runs")
    for run in runs:
        lines.append(f"run driven from {run['driver']}: {run['command']}")
        lines += [f"  {server}" for server in run["servers"]]
    return lines


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

"""`siafu cluster`: machines to train on, started, looked at and ended."""

import getpass
import json
import os
import shlex
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from siafu.base.errors import BadInput
from siafu.base.option import REQUIRED, option
from siafu.base.version import __version__
from siafu.cli.common import say, show
from siafu.cli.declared import add_commands, json_flag
from siafu.launch.template import KINDS, check_name

if TYPE_CHECKING:
    from siafu.launch.record import Record
    from siafu.launch.template import AwsWanted, HostsWanted

app = typer.Typer(help="Start, look at and end a cluster of machines to train on.", no_args_is_help=True)

_INSTANCE = "m6i.2xlarge"
_MACHINES = 3
_OVER_SSH = ("user", "key", "wheel")
_FITTING = {
    "local": ("machines", "host"),
    "ssh": ("hosts", *_OVER_SSH),
    "aws": ("machines", "instance", "region", "image", "disk", *_OVER_SSH),
}


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines that `siafu cluster up` is to start."""

    hosts: str | None = option(None, "ssh: the machines; the first is the head.", metavar="A,B,C")
    machines: int | None = option(None, "How many, the head included (local, aws).", unset=f"{_MACHINES}")
    host: str | None = option(None, "local: the address to listen at.", unset="127.0.0.1", metavar="ADDRESS")
    user: str | None = option(None, "Who ssh logs in as.", unset="you; aws: ubuntu")
    key: Path | None = option(None, "The private key for ssh.", unset="as ssh is set up; aws: Ray's")
    instance: str | None = option(None, "aws: the type of the machines.", unset=_INSTANCE)
    region: str | None = option(None, "aws: the region.", unset="AWS_REGION")
    image: str | None = option(None, "aws: the machines' image.", unset="the latest of Ubuntu 24.04")
    disk: int | None = option(None, "aws: GB of each machine.", unset="100", least=8)
    wheel: Path | None = option(None, "A wheel of siafu to install there.", unset="this version, by pip")

    @property
    def count(self) -> int:
        return _MACHINES if self.machines is None else self.machines

    def check(self, on: str) -> None:
        """Refuse what says nothing of this kind of cluster."""
        fitting = _FITTING[on.removesuffix("-spot")]
        for each in fields(self):
            if getattr(self, each.name) is not None and each.name not in fitting:
                said = ", ".join(f"--{name}" for name in fitting)
                raise BadInput(
                    f"--{each.name} says nothing of a cluster --on {on}: leave it out; there are {said}"
                )

    def wanted(self, on: str, name: str) -> "HostsWanted | AwsWanted":
        from siafu.launch.template import AwsWanted, HostsWanted

        if on == "ssh":
            hosts = tuple(filter(None, (self.hosts or "").split(",")))
            return HostsWanted(name, hosts, self.user or getpass.getuser(), __version__, self.key, self.wheel)
        region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if region is None:
            raise BadInput("no region is given: name a region with --region, like eu-central-1")
        machines = (name, on, self.count, self.instance or _INSTANCE, region, __version__)
        login = self.user or "ubuntu"
        return AwsWanted(*machines, login, self.image, self.disk or 100, self.key, self.wheel)


_name = partial(option, "siafu", "The cluster's name.")


def up(
    given: Machines,
    on: str = option(
        REQUIRED,
        "local: nodes on this machine; ssh: machines that are there; aws; aws-spot: all but the head on spot.",
        choices=KINDS,
    ),
    name: str = _name(),
    dry_run: bool = option(False, "Show what would be started; start nothing."),
    as_json: bool = json_flag(),
) -> None:
    """Start a cluster, and say how to train on it."""
    from siafu.launch import record as records

    check_name(name)
    given.check(on)
    if on == "local":
        _up_here(name, given, dry_run=dry_run, as_json=as_json)
        return
    wanted = given.wanted(on, name)
    if dry_run:
        print(wanted.yaml(), end="")
        return
    if records.find(name) is not None:
        raise _is_there(name)
    from siafu.launch import remote

    _started(remote.up(wanted), as_json)


def status(
    name: str = _name(),
    cluster: str | None = option(
        None, "Any Ray cluster that this machine is part of, instead.", metavar="auto|ADDRESS"
    ),
    as_json: bool = json_flag(),
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
    show(told, _lines(told), as_json=as_json)


def down(name: str = _name(), as_json: bool = json_flag()) -> None:
    """End what `up` started, and nothing else."""
    from siafu.launch import local, remote
    from siafu.launch import record as records

    record = records.get(name)
    if record.kind == "local":
        local.down(record)
    else:
        remote.down(record)
    say(f"cluster {name!r} is down")
    if as_json:
        print(json.dumps({"name": name, "kind": record.kind, "machines": record.machines}))


def _up_here(name: str, given: Machines, *, dry_run: bool, as_json: bool) -> None:
    from siafu.launch import local
    from siafu.launch import record as records
    from siafu.launch.loopback import LOOPBACK

    host = given.host or LOOPBACK
    if dry_run:
        for command in local.commands(name, given.count, 6379, f"/tmp/siafu-ray-{name}", host):
            print(shlex.join(["ray", *command]))
        return
    found = records.find(name)
    if found is not None and (found.kind != "local" or local.runs(found)):
        raise _is_there(name)
    if found is not None:
        local.down(found)  # what is left of one whose processes have ended
    _started(local.up(name, given.count, say, host), as_json)


def _is_there(name: str) -> BadInput:
    return BadInput(
        f"cluster {name!r} is up already: use it, end it with 'siafu cluster down --name {name}', or choose another --name"
    )


def _started(record: "Record", as_json: bool) -> None:
    say(
        f"cluster {record.name!r} is up: {record.machines} {'nodes' if record.kind == 'local' else 'machines'}"
    )
    say(f"next: {_next(record)}")
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


add_commands(app, up, status, down)

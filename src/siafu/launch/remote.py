"""Clusters elsewhere, by Ray's cluster launcher; its YAML file is kept until the cluster is down."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from typing import Any

from siafu.base.errors import BadInput, SiafuError
from siafu.base.storage.documents import one_line
from siafu.base.storage.files import replacing
from siafu.launch import record as records
from siafu.launch.look import import_ray
from siafu.launch.record import Record
from siafu.launch.template import AwsWanted, HostsWanted
from siafu.serverless.deployment.aws import Place, aws_errors

SIAFU = "~/.siafu/bin/siafu"
_RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def up(wanted: HostsWanted | AwsWanted) -> Record:
    """Start the cluster; the output of Ray's launcher goes to stderr."""
    import_ray()
    if isinstance(wanted, AwsWanted):
        wanted = with_image(wanted)
        record = Record(wanted.name, wanted.kind, wanted.machines, user=wanted.user)
    else:
        record = Record(wanted.name, "ssh", len(wanted.hosts), head=wanted.hosts[0], user=wanted.user)
    with replacing(records.yaml_of(wanted.name)) as file:
        file.write(wanted.yaml().encode())
    records.write(record)
    _launcher("up", record, "--yes", "--no-config-cache")
    if record.head is None:
        said = _launcher("get-head-ip", record, quiet=True).split()
        if not said:
            raise SiafuError(f"Ray does not say where the head of {record.name!r} is")
        record = replace(record, head=said[-1])
        records.write(record)
    return record


def down(record: Record) -> None:
    """End the cluster."""
    import_ray()
    _launcher("down", record, "--yes")
    records.forget(record.name)


def look_there(record: Record) -> dict[str, Any]:
    """The cluster's machines and runs, as `siafu cluster status` on its head prints them."""
    import_ray()
    command = f"{SIAFU} cluster status --cluster auto --json"
    said = _launcher("exec", record, command, quiet=True)
    for line in reversed(said.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise SiafuError(f"the head of {record.name!r} did not say what it has: {said.strip()[-300:]}")


def with_image(wanted: AwsWanted) -> AwsWanted:
    """Fill in the image's id: machines that start others could not look it up themselves."""
    wanted.check()
    if wanted.image is not None:
        return wanted
    client = Place(wanted.region).client("ssm")
    with aws_errors(f"say what the latest image for {wanted.instance} is"):
        found = client.get_parameter(Name=wanted.image_parameter())
    return replace(wanted, image=found["Parameter"]["Value"])


def _launcher(command: str, record: Record, *options: str, quiet: bool = False) -> str:
    """Call Ray's launcher; returns its output if `quiet`."""
    line = [*_RAY, command, str(records.yaml_of(record.name)), *options]
    try:
        ran = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else sys.stderr,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
        )
    except OSError as error:
        raise BadInput(f"Ray's launcher cannot be called ({error.strerror})") from error
    if ran.returncode != 0:
        said = (ran.stderr or "").strip().splitlines()
        why = f": {one_line(said[-1])}" if said else ", see above"
        down = f"; 'siafu cluster down --name {shlex.quote(record.name)}' ends what was started"
        after = "" if command == "down" else down
        raise SiafuError(f"'ray {command}' failed with code {ran.returncode}{why}{after}")
    return ran.stdout or ""

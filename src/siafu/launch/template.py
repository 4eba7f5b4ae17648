"""Templates: complete YAML files for Ray's cluster launcher."""

import json
import re
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from siafu.base.addresses import is_address
from siafu.base.errors import BadInput

KINDS = ("local", "ssh", "aws", "aws-spot")
MOST_MACHINES = 1000

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_INSTANCE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")
_WHEEL = re.compile(r"[A-Za-z0-9_.+-]+\.whl")
_IMAGE = re.compile(r"ami-[0-9a-f]{8,17}")
_ARM = re.compile(r"(a1|[a-z-]+\d+[a-z]*g[a-z]*)\..*")


@dataclass(frozen=True, slots=True)
class HostsWanted:
    """A cluster of existing machines.

    hosts:   names or addresses; the first is the head
    version: of siafu, to be installed by pip
    key:     the private key for ssh; None: as ssh is set up
    wheel:   a wheel of siafu to install in place of that version
    """

    name: str
    hosts: tuple[str, ...]
    user: str
    version: str
    key: Path | None = None
    wheel: Path | None = None

    def yaml(self) -> str:
        """For Ray's launcher."""
        _check_common(self)
        for host in self.hosts:
            if _HOST.fullmatch(host) is None and not is_address(host):
                raise BadInput(f"--hosts: {host!r} is no host: give names or addresses, like a,b,c")
        if len(set(self.hosts)) < len(self.hosts):
            raise BadInput("--hosts names a machine twice: name each once")
        if not self.hosts:
            raise BadInput("a cluster of plain machines needs --hosts, like a,b,c; the first is the head")
        head, *workers = self.hosts
        return _filled("ssh", self, head=head, workers=workers, worker_count=len(workers))


@dataclass(frozen=True, slots=True)
class AwsWanted:
    """A cluster of machines on AWS.

    kind:     "aws" or "aws-spot"
    machines: all of them, the head included
    image:    an AMI of Ubuntu 24.04 or what is like it; or where EC2 finds its id
    disk:     GB
    """

    name: str
    kind: str
    machines: int
    instance: str
    region: str
    version: str
    user: str = "ubuntu"
    image: str | None = None
    disk: int = 100
    key: Path | None = None
    wheel: Path | None = None

    def image_parameter(self) -> str:
        """AWS's name of the latest image for the machines' kind of processor."""
        processor = "arm64" if _ARM.fullmatch(self.instance) else "amd64"
        return f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{processor}/hvm/ebs-gp3/ami-id"

    def yaml(self) -> str:
        """For Ray's launcher."""
        self.check()
        return _filled(
            self.kind,
            self,
            region=self.region,
            instance=self.instance,
            image=self.image or f"resolve:ssm:{self.image_parameter()}",
            disk=self.disk,
            worker_count=self.machines - 1,
        )

    def check(self) -> None:
        """Refuse what AWS would refuse, before it is asked."""
        _check_common(self)
        check_machines(self.machines)
        _check("--instance", self.instance, _INSTANCE, "type of machine: give one like m6i.2xlarge")
        _check("--region", self.region, _REGION, "region: give one like eu-central-1")
        if self.image is not None:
            _check("--image", self.image, _IMAGE, "image: give an id like ami-0123456789abcdef0")


def check_machines(machines: int) -> None:
    if not 1 <= machines <= MOST_MACHINES:
        raise BadInput(f"--machines is {machines}: give a number from 1 to {MOST_MACHINES}")


def check_name(name: str) -> None:
    _check("--name", name, _NAME, "cluster's name: use up to 40 of a-z, 0-9 and - within")


def _check(flag: str, value: str, form: re.Pattern[str], fault: str) -> None:
    if form.fullmatch(value) is None:
        raise BadInput(f"{flag} {value!r} is no {fault}")


def _check_common(wanted: HostsWanted | AwsWanted) -> None:
    key, wheel = wanted.key, wanted.wheel
    check_name(wanted.name)
    _check("--user", wanted.user, _USER, "user's name: give the one that ssh logs in as")
    if key is not None and not key.is_file():
        raise BadInput(f"--key: there is no file {key}: give the private key that ssh logs in with")
    if wheel is not None and not (wheel.is_file() and _WHEEL.fullmatch(wheel.name)):
        raise BadInput(f"--wheel: {wheel} is no wheel: make one with 'pip wheel --no-deps .'")


def _filled(kind: str, wanted: HostsWanted | AwsWanted, **values: object) -> str:
    """Fill a template. Values are written as JSON, which YAML reads unchanged, whatever is in them."""
    key, wheel = wanted.key, wanted.wheel
    values |= {"name": wanted.name, "user": wanted.user}
    written = {name: json.dumps(value) for name, value in values.items()}
    there = "" if wheel is None else f"/tmp/{wheel.name}"
    written["file_mounts"] = json.dumps({} if wheel is None else {there: str(wheel.resolve())})
    written["requirement"] = shlex.quote(
        f"{there}[cluster]" if there else f"siafu[cluster]=={wanted.version}"
    )
    written["key"] = "" if key is None else f"ssh_private_key: {json.dumps(str(key.resolve()))}"
    text = files("siafu.launch").joinpath("templates", f"{kind}.yaml").read_text()
    lines = Template(text).substitute(written).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"

"""Templates: complete YAML files for Ray's cluster launcher."""

import ipaddress
import json
import re
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

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
    """A cluster of machines that are there.

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
        _check_common(self.name, self.user, self.key, self.wheel)
        for host in self.hosts:
            if _HOST.fullmatch(host) is None and not _is_ip(host):
                raise BadInput(f"--hosts: {host!r} is no host: give names or addresses, like a,b,c")
        if len(set(self.hosts)) < len(self.hosts):
            raise BadInput("--hosts names a machine twice: name each once")
        if not self.hosts:
            raise BadInput(
                "a cluster of plain machines needs --hosts: name them like a,b,c; the first is the head"
            )
        head, *workers = self.hosts
        return _filled(
            "ssh",
            self.key,
            _package(self.version, self.wheel),
            self.wheel,
            name=self.name,
            head=head,
            workers=workers,
            user=self.user,
            worker_count=len(workers),
        )


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
            self.key,
            _package(self.version, self.wheel),
            self.wheel,
            name=self.name,
            region=self.region,
            user=self.user,
            instance=self.instance,
            image=self.image or f"resolve:ssm:{self.image_parameter()}",
            disk=self.disk,
            worker_count=self.machines - 1,
        )

    def check(self) -> None:
        """Refuse what AWS would refuse, before it is asked."""
        _check_common(self.name, self.user, self.key, self.wheel)
        check_machines(self.machines)
        if _INSTANCE.fullmatch(self.instance) is None:
            raise BadInput(f"--instance {self.instance!r} is no type of machine: give one like m6i.2xlarge")
        if _REGION.fullmatch(self.region) is None:
            raise BadInput(f"--region {self.region!r} is no region: give one like eu-central-1")
        if self.image is not None and _IMAGE.fullmatch(self.image) is None:
            raise BadInput(f"--image {self.image!r} is no image: give an id like ami-0123456789abcdef0")


def check_machines(machines: int) -> None:
    if not 1 <= machines <= MOST_MACHINES:
        raise BadInput(f"--machines is {machines}: give a number from 1 to {MOST_MACHINES}")


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise BadInput(f"--name {name!r} is no cluster's name: use up to 40 of a-z, 0-9 and - within")


def _check_common(name: str, user: str, key: Path | None, wheel: Path | None) -> None:
    check_name(name)
    if _USER.fullmatch(user) is None:
        raise BadInput(f"--user {user!r} is no user's name: give the one that ssh logs in as")
    if key is not None and not key.is_file():
        raise BadInput(f"--key: there is no file {key}: give the private key that ssh logs in with")
    if wheel is not None and not (wheel.is_file() and _WHEEL.fullmatch(wheel.name)):
        raise BadInput(f"--wheel: {wheel} is no wheel: make one with 'pip wheel --no-deps .'")


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _package(version: str, wheel: Path | None) -> str:
    """The requirement that pip installs there."""
    return f"siafu[cluster]=={version}" if wheel is None else f"{_there(wheel)}[cluster]"


def _there(wheel: Path) -> str:
    return f"/tmp/{wheel.name}"


def _filled(kind: str, key: Path | None, package: str, wheel: Path | None, **values: object) -> str:
    """The template with values in it. They are written as JSON, which YAML reads as what they are, whatever is in them."""
    written = {name: json.dumps(value) for name, value in values.items()}
    written["file_mounts"] = json.dumps({} if wheel is None else {_there(wheel): str(wheel.resolve())})
    written["requirement"] = shlex.quote(package)
    written["key"] = "" if key is None else f"ssh_private_key: {json.dumps(str(key.resolve()))}"
    text = files("siafu.launch").joinpath("templates", f"{kind}.yaml").read_text()
    lines = Template(text).substitute(written).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"

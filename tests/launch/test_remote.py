"""Clusters elsewhere: what Ray's launcher is asked, with a launcher of our own in its place."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from siafu.base.errors import SiafuError
from siafu.launch import record as records
from siafu.launch import remote
from siafu.launch.template import AwsWanted, HostsWanted
from tests.serverless.conftest import models_of_aws_are_read_once, nothing_of_the_users_aws  # noqa: F401

pytest.importorskip("ray", reason="Ray is not installed")

HOSTS = HostsWanted("ants", ("a", "b"), "me", "0.1.0")
AWS = AwsWanted("ants", "aws", 2, "m6i.large", "eu-west-1", "0.1.0", image="ami-0123456789abcdef0")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_STATE", str(tmp_path / "state"))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A launcher that writes down what it is asked, and says what is in `says`; with code 3 if that begins with !."""
    launcher, log = tmp_path / "launcher.py", tmp_path / "asked"
    launcher.write_text(
        "import pathlib, sys; here = pathlib.Path(__file__).parent\n"
        "with (here / 'asked').open('a') as file: file.write(' '.join(sys.argv[1:]) + chr(10))\n"
        "said = (here / 'says').read_text() if (here / 'says').exists() else ''\n"
        "if said.startswith('!'): print(said[1:], file=sys.stderr); sys.exit(3)\n"
        "print(said)\n"
    )
    monkeypatch.setattr(remote, "_RAY", [sys.executable, str(launcher)])
    yield log


def test_hosts_are_brought_up_and_taken_down(asked: Path) -> None:
    record = remote.up(HOSTS)
    file = records.yaml_of("ants")
    assert (record.head, record.user, record.machines) == ("a", "me", 2)
    assert file.read_text() == HOSTS.yaml()
    assert records.find("ants") == record
    remote.down(record)
    assert records.find("ants") is None
    assert asked.read_text().splitlines() == [f"up {file} --yes --no-config-cache", f"down {file} --yes"]


def test_the_head_on_aws_is_asked_for(asked: Path) -> None:
    (asked.parent / "says").write_text("warming up\n203.0.113.9\n")
    assert remote.up(AWS).head == "203.0.113.9"
    assert records.get("ants").head == "203.0.113.9"


def test_one_that_did_not_come_up_can_be_taken_down(asked: Path) -> None:
    (asked.parent / "says").write_text("!no route to host a")
    with pytest.raises(SiafuError, match=r"'ray up' failed with code 3.*siafu cluster down --name ants"):
        remote.up(HOSTS)
    assert records.find("ants") is not None


def test_one_that_did_not_go_down_is_remembered(asked: Path) -> None:
    record = remote.up(HOSTS)
    (asked.parent / "says").write_text("!no route to host a")
    with pytest.raises(SiafuError, match="'ray down' failed"):
        remote.down(record)
    assert records.find("ants") == record


def test_the_head_says_what_there_is(asked: Path) -> None:
    record = remote.up(HOSTS)
    told = {"address": "a:6379", "machines": [], "cores_free": 0, "runs": []}
    (asked.parent / "says").write_text(f"Warning: x\n{json.dumps(told)}\nShared connection closed.\n")
    assert remote.look_there(record) == told
    assert (
        asked.read_text().splitlines()[-1].endswith("~/.siafu/bin/siafu cluster status --cluster auto --json")
    )


def test_a_head_that_says_nothing_is_told(asked: Path) -> None:
    record = remote.up(HOSTS)
    (asked.parent / "says").write_text("bash: siafu: not found")
    with pytest.raises(SiafuError, match="did not say what it has: bash: siafu: not found"):
        remote.look_there(record)


def test_the_latest_image_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3 = pytest.importorskip("boto3")
    from botocore.stub import Stubber

    client = boto3.client("ssm", region_name="eu-west-1")
    wanted = AwsWanted("ants", "aws", 2, "c7g.large", "eu-west-1", "0.1.0")
    monkeypatch.setattr(remote, "Place", lambda region: SimpleNamespace(client=lambda service: client))
    found: dict[str, Any] = {"Parameter": {"Value": "ami-0123456789abcdef0"}}
    with Stubber(client) as stub:
        stub.add_response("get_parameter", found, {"Name": wanted.image_parameter()})
        assert remote.with_image(wanted).image == "ami-0123456789abcdef0"

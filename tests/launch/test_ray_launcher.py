"""Ray's real launcher, fed with our templates: an ssh that only writes down stands for hosts, moto for AWS."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from siafu.launch import record as records
from siafu.launch import remote
from siafu.launch.template import AwsWanted, HostsWanted
from tests.serverless.conftest import models_of_aws_are_read_once, nothing_of_the_users_aws  # noqa: F401

pytest.importorskip("ray", reason="Ray is not installed")

_WRITES_DOWN = f"""#!{sys.executable}
import json, pathlib, sys
with (pathlib.Path(__file__).parent / "log").open("a") as file:
    file.write(json.dumps(sys.argv) + chr(10))
"""


@pytest.fixture
def said_to_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are written that hosts would have been sent."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("ssh", "rsync", "scp"):
        (tools / name).write_text(_WRITES_DOWN)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("SIAFU_STATE", str(tmp_path / "state"))
    (tmp_path / "ray").mkdir()
    return tools / "log"


def commands(log: Path) -> list[str]:
    """What a shell at the other end would have been given."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [words[-1] for words in lines if Path(words[0]).name == "ssh"]


@pytest.mark.slow
def test_hosts_are_set_up_started_and_stopped(said_to_hosts: Path) -> None:
    record = remote.up(HostsWanted("ants", ("192.0.2.77", "192.0.2.78"), "me", "0.1.0"))
    told = commands(said_to_hosts)
    for part in (
        "-m venv ~/.siafu",
        "siafu[cluster]==0.1.0",
        "Ray runs on this machine already",
        "ray start --head",
    ):
        assert sum(part in command for command in told) == 1, part
    assert not any("ray stop" in command for command in told)
    for command in told:
        subprocess.run(["bash", "-n", "-c", f"bash -c {command}"], check=True)

    said_to_hosts.unlink()
    remote.down(record)
    assert "ray stop" in commands(said_to_hosts)[-1]
    assert records.find("ants") is None


@pytest.mark.parametrize("kind", ["aws", "aws-spot"])
@pytest.mark.slow
def test_ray_finds_all_that_aws_wants_to_know(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto = pytest.importorskip("moto", reason="moto is not installed: it stands in for AWS here")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    wanted = AwsWanted("ants", kind, 3, "m5.large", "eu-west-1", "0.1.0", image="ami-12c6146b")
    with moto.mock_aws():
        _make_profile()
        config = _bootstrapped(wanted.yaml())
        worker, head = (_launched(config, each) for each in ("worker", "head"))
    assert worker["InstanceType"] == head["InstanceType"] == "m5.large"
    assert worker.get("InstanceLifecycle") == ("spot" if kind == "aws-spot" else None)
    assert "InstanceLifecycle" not in head


def _make_profile() -> None:
    """What Ray makes at its first time in an account, and then waits for a while."""
    import boto3

    iam = boto3.client("iam", region_name="eu-west-1")
    name = "ray-autoscaler-v1"
    iam.create_instance_profile(InstanceProfileName=name)
    iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def _bootstrapped(text: str) -> dict[str, Any]:
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(text))
    validate_config(config)
    found: dict[str, Any] = bootstrap_aws(config)
    return found


def _launched(config: dict[str, Any], kind: str) -> dict[str, Any]:
    import boto3
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    node_config = config["available_node_types"][kind]["node_config"]
    made = provider.create_node(node_config, {"ray-node-type": kind, "ray-node-name": kind}, 1)
    found = boto3.client("ec2", region_name="eu-west-1").describe_instances(InstanceIds=list(made))
    instance: dict[str, Any] = found["Reservations"][0]["Instances"][0]
    return instance

"""What Ray's launcher is told: judged by Ray's own schema."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import siafu
from siafu.base.errors import BadInput
from siafu.launch.template import AwsWanted, HostsWanted

pytest.importorskip("ray", reason="Ray is not installed: its schema judges the templates")


def hosts(**changes: Any) -> HostsWanted:
    given = {
        "name": "ants",
        "hosts": ("a", "10.0.0.2", "c.example"),
        "user": "me",
        "version": siafu.__version__,
    }
    return HostsWanted(**(given | changes))


def aws(**changes: Any) -> AwsWanted:
    given = {
        "name": "ants",
        "kind": "aws",
        "machines": 4,
        "instance": "m6i.2xlarge",
        "region": "eu-central-1",
        "version": siafu.__version__,
    }
    return AwsWanted(**(given | changes))


def checked(text: str) -> dict[str, Any]:
    """What Ray makes of it, after its own checks."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(yaml.safe_load(text))
    validate_config(prepared)
    return prepared


def test_a_cluster_of_hosts_is_as_ray_wants_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    told = checked(hosts(key=key).yaml())
    assert told["provider"] == {"type": "local", "head_ip": "a", "worker_ips": ["10.0.0.2", "c.example"]}
    assert told["auth"] == {"ssh_user": "me", "ssh_private_key": str(key)}
    assert told["available_node_types"]["local.cluster.node"]["min_workers"] == 2


def test_a_cluster_of_one_host_has_no_workers() -> None:
    assert checked(hosts(hosts=("a",)).yaml())["provider"]["worker_ips"] == []


@pytest.mark.parametrize("kind", ["aws", "aws-spot"])
def test_a_cluster_on_aws_is_as_ray_wants_it(kind: str) -> None:
    told = checked(aws(kind=kind, image="ami-0123456789abcdef0", disk=50).yaml())
    assert told["provider"]["region"] == "eu-central-1"
    assert told["max_workers"] == 3
    worker = told["available_node_types"]["worker"]
    assert (worker["min_workers"], worker["max_workers"]) == (3, 3)
    for each in told["available_node_types"].values():
        assert each["node_config"]["InstanceType"] == "m6i.2xlarge"
        assert each["node_config"]["ImageId"] == "ami-0123456789abcdef0"
        assert each["node_config"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 50


def test_on_spot_all_but_the_head_are_spot_machines() -> None:
    types = checked(aws(kind="aws-spot").yaml())["available_node_types"]
    assert types["worker"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in types["head"]["node_config"]
    types = checked(aws(kind="aws").yaml())["available_node_types"]
    assert "InstanceMarketOptions" not in types["worker"]["node_config"]


@pytest.mark.parametrize(
    ("instance", "processor"),
    [
        ("m6i.2xlarge", "amd64"),
        ("g4dn.xlarge", "amd64"),
        ("c7g.xlarge", "arm64"),
        ("x2gd.large", "arm64"),
        ("a1.large", "arm64"),
    ],
)
def test_the_image_is_for_the_machines_processor(instance: str, processor: str) -> None:
    assert f"/{processor}/" in aws(instance=instance).image_parameter()


@pytest.mark.parametrize("wanted", [hosts(), aws(), aws(kind="aws-spot")])
def test_this_version_is_installed(wanted: HostsWanted | AwsWanted) -> None:
    installs = [line for line in checked(wanted.yaml())["setup_commands"] if "pip install" in line]
    assert len(installs) == 1
    assert installs[0].endswith(f"'siafu[cluster]=={siafu.__version__}'")


def test_a_wheel_is_sent_and_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "siafu-9-py3-none-any.whl"
    wheel.touch()
    told = checked(hosts(wheel=wheel).yaml())
    assert told["file_mounts"] == {"/tmp/siafu-9-py3-none-any.whl": str(wheel)}
    assert any("'/tmp/siafu-9-py3-none-any.whl[cluster]'" in line for line in told["setup_commands"])


def test_ray_finds_the_head_by_the_shells_variable() -> None:
    for wanted in (hosts(), aws()):
        assert "--address=$RAY_HEAD_IP:6379" in checked(wanted.yaml())["worker_start_ray_commands"][-1]


def test_a_host_where_ray_runs_already_is_not_taken() -> None:
    told = checked(hosts().yaml())
    for commands in (told["head_start_ray_commands"], told["worker_start_ray_commands"]):
        assert "exit 1" in commands[0]
        assert not any("ray stop" in command for command in commands)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (hosts(hosts=()), "needs --hosts"),
        (hosts(hosts=("a", "a")), "twice"),
        (hosts(hosts=("a b",)), "'a b' is no host"),
        (hosts(hosts=("-oProxyCommand=x",)), "is no host"),
        (hosts(user="me; rm"), "--user"),
        (hosts(name="My cluster"), "--name"),
        (hosts(name="../x"), "--name"),
        (hosts(key=Path("/no/such/key")), "no file /no/such/key"),
        (hosts(wheel=Path("/no/such.whl")), "--wheel"),
        (aws(machines=0), "--machines is 0"),
        (aws(instance="big"), "--instance 'big'"),
        (aws(region="mars"), "--region 'mars'"),
        (aws(image="ubuntu"), "--image 'ubuntu'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wanted: HostsWanted | AwsWanted, why: str) -> None:
    with pytest.raises(BadInput, match=why) as told:
        wanted.yaml()
    assert "\n" not in str(told.value)

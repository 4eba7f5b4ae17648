"""`siafu cluster`."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from siafu.launch import record as records
from siafu.launch.record import Record
from tests.cli.command import Siafu, spawn

pytest.importorskip("ray", reason="Ray is not installed: siafu cluster is a layer around it")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_STATE", str(tmp_path / "state"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def _are_gone(pids: list[int]) -> bool:
    """Soon: on a busy machine the last of a process that was killed takes a moment."""
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
def test_a_cluster_on_this_machine_comes_up_is_seen_and_goes(siafu: Siafu, tmp_path: Path) -> None:
    up = siafu("cluster", "up", on="local", machines=2, json=True)
    assert up.code == 0, up.err
    try:
        record = records.get("siafu")
        address = record.address
        assert up.json()["address"] == address
        assert up.err.splitlines()[-1].startswith("next: siafu train STORE --cluster ")
        assert "is up already" in siafu.refused("cluster", "up", on="local")

        found = siafu("cluster", "status", json=True).json()
        assert [each["head"] for each in found["machines"]] == [True, False]
        assert all(each["cores"] >= 1 and each["memory_bytes"] > 0 for each in found["machines"])
        assert found["runs"] == []
        assert (
            siafu("cluster", "status", cluster=address).out.splitlines()[0].startswith(f"{address}: 2 nodes")
        )
        assert "listens to this machine only: 127.0.0.1" in up.err
        assert Path(record.scratch or "").stat().st_mode & 0o777 == 0o700
        assert records.token_of("siafu").stat().st_mode & 0o777 == 0o600
        assert _heard_by_others_in_a_run(siafu, tmp_path, record) == []
    finally:
        down = siafu("cluster", "down")
    assert down.code == 0, down.err
    assert _are_gone([each["pid"] for each in record.processes])
    assert record.scratch is not None
    assert not Path(record.scratch).exists()
    assert "no cluster 'siafu'" in siafu.refused("cluster", "status")


def _heard_by_others_in_a_run(siafu: Siafu, tmp_path: Path, record: Record) -> list[str]:
    """Where the cluster, the driver and the servers of a run listen, unless it is on loopback."""
    assert siafu("generate", "reddit-small", "-o", tmp_path / "store", scale=0.005).code == 0
    options = {"cluster": record.address, "servers": 2, "epochs": 10**6, "out": tmp_path / "run"}
    run = spawn("train", tmp_path / "store", **options)
    try:
        assert run.stderr is not None
        assert any(line.startswith("epoch 1/") for line in run.stderr), "the run has begun"
        sessions = {each["pid"] for each in record.processes}
        members = [each for each in psutil.process_iter() if os.getsid(each.pid) in sessions]
        assert sum("_Actor" in each.name() for each in members) == 3  # two graph servers, a weight server
        bound = {
            at.laddr.ip.removeprefix("::ffff:")
            for each in [psutil.Process(run.pid), *members]
            for at in each.net_connections("tcp")
            if at.status == psutil.CONN_LISTEN
        }
    finally:
        run.kill()
        run.communicate()
    return sorted(bound - {"127.0.0.1"})


def test_a_dry_run_shows_the_whole_file_and_starts_nothing(siafu: Siafu) -> None:
    ended = siafu("cluster", "up", on="ssh", hosts="a,b,c", user="me", dry_run=True)
    assert yaml.safe_load(ended.out)["provider"]["worker_ips"] == ["b", "c"]
    ended = siafu("cluster", "up", on="aws-spot", region="eu-west-1", machines=5, dry_run=True)
    assert yaml.safe_load(ended.out)["max_workers"] == 4
    assert records.find("siafu") is None


def test_a_dry_run_on_this_machine_shows_the_commands(siafu: Siafu) -> None:
    head, *others = siafu("cluster", "up", on="local", machines=3, dry_run=True).out.splitlines()
    assert head.startswith("ray start --block")
    assert "--head" in head
    assert len(others) == 2
    assert all("--address=127.0.0.1:" in line for line in others)
    assert all("--node-ip-address=127.0.0.1" in line for line in (head, *others))
    told = siafu("cluster", "up", on="local", host="192.0.2.7", dry_run=True).out
    assert "--node-ip-address=192.0.2.7" in told


def test_an_address_that_this_machine_does_not_have_is_told(siafu: Siafu) -> None:
    assert "this machine has no address '192.0.2.7'" in siafu.refused(
        "cluster", "up", on="local", host="192.0.2.7"
    )
    assert records.find("siafu") is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"on": "mars"}, "--on is 'mars': choose one of local, ssh, aws, aws-spot"),
        ({"on": "ssh"}, "needs --hosts"),
        ({"on": "ssh", "hosts": "a,b", "machines": 2}, "--machines says nothing of a cluster --on ssh"),
        ({"on": "ssh", "hosts": "a b"}, "'a b' is no host"),
        ({"on": "local", "hosts": "a"}, "--hosts says nothing of a cluster --on local"),
        ({"on": "local", "machines": 0}, "--machines is 0"),
        ({"on": "local", "name": "No Name"}, "--name 'No Name'"),
        ({"on": "aws"}, "name a region with --region"),
        ({"on": "aws", "region": "eu-west-1", "instance": "large"}, "--instance 'large'"),
        ({"on": "aws", "region": "eu-west-1", "key": "nowhere"}, "there is no file nowhere"),
    ],
)
def test_bad_options_are_one_line(siafu: Siafu, options: dict[str, object], why: str) -> None:
    assert why in siafu.refused("cluster", "up", **options, dry_run=True)


@pytest.mark.parametrize("command", ["status", "down"])
def test_a_cluster_that_was_not_started_is_one_line(siafu: Siafu, command: str) -> None:
    assert "'siafu cluster up' starts one" in siafu.refused("cluster", command)
    records.write(Record("bees", "ssh", 2, head="a", user="me"))
    assert "there are bees" in siafu.refused("cluster", command)


def test_a_cluster_whose_processes_have_ended_is_told(siafu: Siafu) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="siafu-ray-", dir="/tmp"))
    gone = {"pid": 2**22 + 1, "started": 1}
    records.write(Record("siafu", "local", 1, address="127.0.0.1:1", processes=[gone], scratch=str(scratch)))
    assert "has ended" in siafu.refused("cluster", "status")
    assert siafu("cluster", "down", json=True).json()["name"] == "siafu"
    assert not scratch.exists()


def test_a_cluster_of_a_name_that_is_taken_is_not_started(siafu: Siafu) -> None:
    records.write(Record("ants", "ssh", 2, head="a", user="me"))
    for options in ({"on": "ssh", "hosts": "a,b"}, {"on": "local"}):
        assert "is up already" in siafu.refused("cluster", "up", name="ants", **options)


@pytest.mark.parametrize(
    "damaged",
    [
        {"ants": 1},
        {"name": "siafu", "kind": "local", "machines": "many"},
        {"name": "siafu", "kind": "local", "machines": 1, "scratch": ["/"]},
        {"name": "siafu", "kind": "local", "machines": 1, "processes": [{"pid": "1"}]},
    ],
)
def test_a_damaged_record_is_told(siafu: Siafu, damaged: dict[str, Any]) -> None:
    records.write(Record("siafu", "local", 1))
    path = records.directory_of("siafu") / "cluster.json"
    path.write_text(json.dumps(damaged))
    assert "is damaged" in siafu.refused("cluster", "status")
    path.write_text("[" * 20_000)
    assert "is damaged" in siafu.refused("cluster", "status")


def test_a_node_that_does_not_come_up_is_told_and_nothing_is_left(
    siafu: Siafu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from siafu.launch import local

    monkeypatch.setattr(local, "_RAY", [sys.executable, "-c", "print('no ports left'); raise SystemExit(1)"])
    ended = siafu("cluster", "up", on="local", machines=2)
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "siafu: Ray's node 1 did not come up: no ports left"
    assert records.find("siafu") is None

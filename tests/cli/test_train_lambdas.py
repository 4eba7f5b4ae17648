"""`siafu train --lambdas`, as people use it."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from safetensors import safe_open

from tests.cli.command import Siafu, spawn
from tests.cli.test_train import wait_for_epoch
from tests.serverless.conftest import models_of_aws_are_read_once, nothing_of_the_users_aws  # noqa: F401

pytestmark = pytest.mark.slow  # trains on processes of local Lambdas

moto = pytest.importorskip("moto", reason="moto is not installed: it stands in for AWS here")


@pytest.fixture
def aws() -> Iterator[None]:
    with moto.mock_aws():
        yield


@pytest.mark.parametrize("count", ["0", "x", "-1", "1.5"])
def test_a_count_that_is_none_is_one_clear_line(siafu: Siafu, store: Path, count: str) -> None:
    line = siafu.refused("train", store, lambdas="local", lambda_count=count)
    assert f"lambda_count is {count}" in line.replace("'", "")
    assert "give a whole number from 1 up" in line


def test_without_a_region_there_is_one_clear_line(siafu: Siafu, store: Path) -> None:
    assert "name a region with --region" in siafu.refused("train", store, lambdas="aws")


def test_without_credentials_there_is_one_clear_line(
    siafu: Siafu, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    line = siafu.refused("train", store, lambdas="aws", region="eu-west-1")
    assert "Unable to locate credentials" in line


def test_a_function_that_is_not_there_is_one_clear_line(siafu: Siafu, store: Path, aws: None) -> None:
    line = siafu.refused("train", store, lambdas="aws", region="eu-west-1", lambda_function="ants")
    assert "ants" in line
    assert "run `siafu lambda deploy`" in line
    assert not Path("runs").exists()


def test_where_lambdas_run_is_said_and_local_ones_show_no_dollars(siafu: Siafu, store: Path) -> None:
    asked = {"lambdas": "local", "lambda_count": 2, "epochs": 2, "intervals": 2, "out": "run"}
    ended = siafu("train", store, json=True, **asked)
    assert ended.code == 0, ended.err
    assert "tensor tasks on at most 2 Lambdas (processes of this machine)" in ended.err
    summary = ended.json()
    used = summary["lambda"]
    assert f"Lambdas: {used['invocations']} invocations, " in ended.err
    assert "$" not in ended.err
    assert used["usd"] > 0
    assert summary["cost"]["lambda_compute_usd"] == 0


def test_the_count_is_found_and_told_for_every_epoch(siafu: Siafu, store: Path) -> None:
    asked = {"lambdas": "local", "lambda_count": "auto", "epochs": 4, "intervals": 2, "out": "run"}
    ended = siafu("train", store, json=True, **asked)
    assert ended.code == 0, ended.err
    assert "as many Lambdas as prove best" in ended.err
    counts = ended.json()["lambda"]["counts"]
    assert counts[0] == 2
    assert len(counts) == 4


def lambdas_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    module = "siafu.serverless.platforms.process"
    return [each for each in psutil.Process(process.pid).children() if module in each.cmdline()]


def start(store: Path, out: Path, epochs: int) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run that would never end, at some epoch, and its Lambdas."""
    asked = {"lambdas": "local", "lambda_count": 2, "intervals": 2, "hidden": 8}
    process = spawn("train", store, epochs=10**6, out=out, **asked)
    wait_for_epoch(process, out / "metrics.jsonl", epochs)
    found = lambdas_of(process)
    assert len(found) == 2
    return process, found


def test_a_stopped_run_leaves_no_lambda_and_goes_on(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process, lambdas = start(store, out, epochs=3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert psutil.wait_procs(lambdas, timeout=30)[1] == []

    before = saved_counters(out)
    assert before["lambda"]["billed_gb_seconds"] > 0
    epochs = len((out / "metrics.jsonl").read_text().splitlines()) + 2
    asked = {"lambdas": "local", "lambda_count": 2, "intervals": 2, "hidden": 8}
    ended = siafu("train", store, epochs=epochs, out=out, resume=True, json=True, **asked)
    assert ended.code == 0, ended.err
    total = ended.json()
    assert total["epochs"] == epochs
    assert total["gradients_applied"] == before["gradients_applied"] + 2 * 2 * 2
    for counted in ("invocations", "billed_gb_seconds", "usd"):
        assert total["lambda"][counted] > before["lambda"][counted]


def saved_counters(out: Path) -> dict[str, dict[str, float]]:
    with safe_open(out / "checkpoint.safetensors", "pt") as file:
        state: dict[str, dict[str, dict[str, float]]] = json.loads(file.metadata()["siafu"])
    return state["counters"]


def test_a_killed_run_leaves_no_lambda(store: Path, tmp_path: Path) -> None:
    process, lambdas = start(store, tmp_path / "run", epochs=2)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(lambdas, timeout=30)[1] == []

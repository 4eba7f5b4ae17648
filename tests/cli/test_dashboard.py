"""`siafu dashboard`, from its start to Ctrl-C."""

import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Siafu, spawn


@pytest.mark.slow
def test_it_says_where_it_answers_and_ends_with_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    process = spawn("dashboard", port=0)
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        address = told.split(": ")[1].split()[0]
        assert "runs in runs, which the first training here makes" in told
        assert httpx.get(f"{address}api/runs", trust_env=False).json() == {"runs": [], "all": True}
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_others_than_this_machine_need_a_token(siafu: Siafu, host: str) -> None:
    assert "--token" in siafu.refused("dashboard", host=host)


def test_a_short_token_is_refused(siafu: Siafu) -> None:
    assert "at least 16" in siafu.refused("dashboard", host="0.0.0.0", token="short")


def test_a_port_that_is_taken_is_said(siafu: Siafu) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in siafu.refused("dashboard", port=port)


def test_an_address_that_is_not_ours_is_said(siafu: Siafu) -> None:
    told = siafu.refused("dashboard", host="192.0.2.1", token="a token of some length")
    assert "cannot listen at 192.0.2.1" in told


def test_a_file_is_no_directory_of_runs(siafu: Siafu, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in siafu.refused("dashboard", tmp_path / "file")


def test_a_directory_that_is_not_there_is_refused_if_it_was_named(siafu: Siafu, tmp_path: Path) -> None:
    assert f"there is no directory {tmp_path / 'rums'}" in siafu.refused("dashboard", tmp_path / "rums")

"""Ray on this machine alone."""

import os
from pathlib import Path

import pytest

from siafu.base.addresses import is_loopback
from siafu.launch import record as records
from siafu.launch.loopback import loopback_is_meant, make_token, show_token
from siafu.launch.record import Record

services = pytest.importorskip("ray._private.services", reason="Ray is not installed")
VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")


def test_ray_takes_a_loopback_address_as_it_is_only_while_it_is_meant() -> None:
    with loopback_is_meant():
        assert services.resolve_ip_for_localhost("127.0.0.1") == "127.0.0.1"
    assert services.resolve_ip_for_localhost("127.0.0.1") != "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_which_addresses_are_this_machines_alone(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_a_token_is_its_owners_alone_and_another_each_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "token"
    make_token(path)
    first = path.read_text()
    path.chmod(0o666)
    make_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(first) == 64
    assert path.read_text() != first


def test_a_token_is_shown_to_its_own_cluster_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    make_token(tmp_path / "token")
    show_token(tmp_path / "token")
    assert [os.environ.get(each) for each in VARIABLES] == ["token", str(tmp_path / "token")]
    show_token(None)
    assert [os.environ.get(each) for each in VARIABLES] == [None, None]


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    show_token(None)
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == "/nowhere"


def test_a_cluster_is_found_by_its_address_or_as_the_only_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SIAFU_STATE", str(tmp_path))
    ants = Record("ants", "local", 1, address="127.0.0.1:1")
    records.write(ants)
    records.write(Record("far", "ssh", 2, head="a", user="me"))
    assert records.at("auto") == records.at("127.0.0.1:1") == ants
    assert records.at("127.0.0.1:2") is None
    (records.directory_of("far") / "cluster.json").write_text("{}")
    assert records.at("auto") == ants
    records.write(Record("bees", "local", 1, address="127.0.0.1:2"))
    assert records.at("auto") is None

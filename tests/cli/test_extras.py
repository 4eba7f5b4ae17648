"""A command that needs an extra which is not installed says which, in one line."""

import sys
from pathlib import Path

import pytest

from siafu.base.extras import MODULES
from tests.cli.command import Siafu

LAMBDA = [("lambda", each) for each in ("deploy", "status", "invoke", "logs", "teardown")]


def take_away(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra were not installed."""
    for module in MODULES[extra]:
        for loaded in [each for each in sys.modules if each.partition(".")[0] == module]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, module, None)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize("words", LAMBDA, ids=lambda words: words[1])
def test_commands_of_the_function_on_aws(
    siafu: Siafu, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    take_away("aws", monkeypatch)
    assert "pip install 'siafu[aws]'" in siafu.refused(*words, region="eu-west-1")


@pytest.mark.parametrize("on", ["local", "ssh"])
def test_a_cluster(siafu: Siafu, monkeypatch: pytest.MonkeyPatch, on: str) -> None:
    take_away("cluster", monkeypatch)
    hosts = "a,b" if on == "ssh" else None
    assert "pip install 'siafu[cluster]'" in siafu.refused("cluster", "up", on=on, hosts=hosts)


def test_a_run_on_a_cluster(siafu: Siafu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert siafu("generate", "reddit-small", "-o", tmp_path / "store", scale=0.005).code == 0
    take_away("cluster", monkeypatch)
    told = siafu.refused(
        "train", tmp_path / "store", cluster="auto", servers=2, epochs=1, out=tmp_path / "run"
    )
    assert "pip install 'siafu[cluster]'" in told


def test_looking_at_any_cluster(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away("cluster", monkeypatch)
    assert "pip install 'siafu[cluster]'" in siafu.refused("cluster", "status", cluster="auto")


def test_parquet(siafu: Siafu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "edges.parquet").write_bytes(b"PAR1")
    take_away("parquet", monkeypatch)
    told = siafu.refused("import", tmp_path / "edges.parquet", "-o", tmp_path / "store")
    assert "pip install 'siafu[parquet]'" in told


@pytest.mark.parametrize("extra", sorted(MODULES))
def test_a_module_that_nobody_looked_for_is_told_with_its_extra(
    siafu: Siafu, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    module = MODULES[extra][0]

    def stumble(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")

    monkeypatch.setattr("siafu.cli.doctor._examine", stumble)
    assert f"this needs {module}, which is not installed: pip install 'siafu[{extra}]'" in siafu.refused(
        "doctor"
    )


def test_a_module_of_no_extra_is_no_bad_input(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'ours'", name="ours")

    monkeypatch.setattr("siafu.cli.doctor._examine", stumble)
    monkeypatch.setattr(sys, "argv", ["siafu", "doctor"])
    from siafu.cli import main

    with pytest.raises(ModuleNotFoundError):
        main()
